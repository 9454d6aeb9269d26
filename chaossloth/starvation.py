"""Starvation: steps that hold the loop too long (natural runs), and blocking calls written inside coroutines (source).

The hard part is cost: a natural run must stay natural. The hook around a step writes one attribute at its start and at
its end, and compares two integers; everything else happens in a sampling thread that looks at that attribute a few
times per threshold and takes the loop thread's stack (`sys._current_frames`) at most once per step. A C call that keeps
the interpreter lock keeps the sampler away too: such a step is known by its length and by what the hook says, not by
stack.

The source audit resolves names through imports and scopes and knows a table of calls. It looks at what runs on the
loop: bodies of nested `def` and `lambda` are not part of a coroutine, a function that is only handed on is not called.
"""

from __future__ import annotations

import ast
import linecache
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

from chaossloth.evidence import Frame, StarvationEntry
from chaossloth.loop.virtual import real_monotonic_ns
from chaossloth.subject.primitives import LOOP_BOUNDARY, OWN_LOOP, watch

__all__ = ["Watchdog", "blocking_calls"]

_STACK = 30  # frames kept
_ENTRIES = 100  # places kept


class Watchdog:
    """Samples the stack of steps that last longer than a threshold.

    The hook calls `begin()` before a step and `end()` after it; or, to save the calls, it writes `started_ns` and 0
    itself and calls `too_long` for a step above `threshold_ns`. threshold_ms: milliseconds; is_subject: which files are
    the subject's.
    """

    def __init__(self, threshold_ms: float = 50.0, is_subject: Callable[[str], bool] | None = None) -> None:
        self.started_ns = 0  # real_monotonic_ns() at the start of the running step, 0 between steps
        self.threshold_ns = int(threshold_ms * 1e6)
        self.longest_ns = 0
        self.sampled = threading.Event()  # set at each sample
        self._is_subject = is_subject
        self._entries: dict[tuple[str, int, str], tuple[StarvationEntry, int]] = {}
        self._open: tuple[int, tuple[str, int, str]] | None = None  # (started_ns, place) of the last sampled step
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop_thread_id: int) -> None:
        """Begin to sample the thread with this identifier (`threading.get_ident()`); RuntimeError if already begun."""
        if self._thread is not None:
            raise RuntimeError("the watchdog is already started")
        self._stop.clear()
        name = "chaossloth-watchdog"
        self._thread = threading.Thread(
            target=self._sample_until_stopped, args=(loop_thread_id,), name=name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the sampling thread; what was found is kept. A second call does nothing."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def begin(self) -> None:
        """A step starts now."""
        self.started_ns = real_monotonic_ns()

    def end(self, where: Frame | None = None) -> None:
        """The step is over. where: a line of it, for the case that it was too long and could not be sampled."""
        started, self.started_ns = self.started_ns, 0
        if started == 0:
            return
        length = real_monotonic_ns() - started
        if length > self.longest_ns:
            self.longest_ns = length
        if length > self.threshold_ns:
            self.too_long(started, length, where)

    def too_long(self, started: int, length: int, where: Frame | None) -> None:
        """A step above the threshold has ended. started: its `started_ns`; length: nanoseconds."""
        with self._lock:
            self.longest_ns = max(self.longest_ns, length)
            if self._open is not None and self._open[0] == started:
                entry, count = self._entries.get(self._open[1], (None, 0))
                if entry is not None and length / 1e6 > (entry.held_ms or 0.0):
                    self._entries[self._open[1]] = (replace(entry, held_ms=length / 1e6), count)
            elif where is not None:
                detail = "not sampled: one call kept the interpreter lock, or the step ended just above the threshold"
                place = (where.file, where.line, where.function)
                self._put(place, StarvationEntry(*place, length / 1e6, detail))

    @property
    def longest_step_ms(self) -> float:
        return self.longest_ns / 1e6

    def result(self) -> tuple[StarvationEntry, ...]:
        """One entry per place, longest first; held_ms is the longest step that was seen there."""
        with self._lock:
            entries = [_with_count(entry, count) for entry, count in self._entries.values()]
        return tuple(sorted(entries, key=lambda each: (-(each.held_ms or 0.0), each.file, each.line)))

    # -- sampling -----------------------------------------------------------------------------------------------------

    def _sample_until_stopped(self, thread_id: int) -> None:
        interval = max(self.threshold_ns / 4e9, 0.001)
        while not self._stop.wait(interval):
            started = self.started_ns
            if started == 0 or real_monotonic_ns() - started <= self.threshold_ns:
                continue
            if self._open is not None and self._open[0] == started:
                continue
            frame = sys._current_frames().get(thread_id)
            frames = _frames_of_step(frame) if frame is not None else []
            if frames and self.started_ns == started:  # still the same step
                self._sample(started, frames)
                self.sampled.set()

    def _sample(self, started: int, frames: list[tuple[CodeType, int]]) -> None:
        subject = next((each for each in frames if self._of_subject(each[0].co_filename)), frames[0])
        place = (subject[0].co_filename, subject[1], subject[0].co_qualname)
        stack = tuple(f"{code.co_filename}:{line} {code.co_qualname}" for code, line in frames[:_STACK])
        text = linecache.getline(place[0], place[1]).strip()
        held = real_monotonic_ns() - started
        with self._lock:
            self._put(place, StarvationEntry(*place, held / 1e6, text, stack))
            self._open = (started, place)
            self.longest_ns = max(self.longest_ns, held)

    def _put(self, place: tuple[str, int, str], entry: StarvationEntry) -> None:
        old, count = self._entries.get(place, (None, 0))
        if old is None and len(self._entries) >= _ENTRIES:
            return
        keep = entry if old is None or (entry.held_ms or 0.0) > (old.held_ms or 0.0) else old
        self._entries[place] = (keep, count + 1)

    def _of_subject(self, filename: str) -> bool:
        return (self._is_subject or watch.is_subject)(filename)


def _frames_of_step(frame: FrameType) -> list[tuple[CodeType, int]]:
    """Innermost first, up to where the loop runs the handle; not what stands in for `time.sleep` and its like."""
    frames: list[tuple[CodeType, int]] = []
    here: FrameType | None = frame
    while here is not None and here.f_code.co_filename in _DISPATCHERS:
        here = here.f_back
    while here is not None and here.f_code is not LOOP_BOUNDARY and not here.f_code.co_filename.startswith(OWN_LOOP):
        frames.append((here.f_code, here.f_lineno))
        here = here.f_back
    return frames or [(frame.f_code, frame.f_lineno)]


def _with_count(entry: StarvationEntry, count: int) -> StarvationEntry:
    return entry if count == 1 else replace(entry, detail=f"{entry.detail} ({count} steps)".strip())


_DISPATCHERS = frozenset({OWN_LOOP + "virtual.py", OWN_LOOP + "streams.py"})


# -- source audit ------------------------------------------------------------------------------------------------------

_HTTP = ("get", "post", "put", "patch", "delete", "head", "options", "request")
_SUBPROCESS = ("run", "call", "check_call", "check_output", "getoutput", "getstatusoutput")
_SOCKET = ("create_connection", "getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")
_FILE = {"read", "readline", "readlines", "readinto", "write", "writelines", "flush"}
_PATH = {"read_text", "read_bytes", "write_text", "write_bytes"}

_BLOCKING: dict[str, str] = {
    "time.sleep": "await asyncio.sleep() instead",
    "input": "reads the terminal",
    "os.system": "use asyncio.create_subprocess_shell()",
    "urllib.request.urlopen": "network request",
    "urllib.request.urlretrieve": "network request",
    "sqlite3.connect": "opens a database file",
    "socket.getfqdn": "name resolution",
    **{f"requests.{name}": "network request" for name in _HTTP},
    **{f"httpx.{name}": "network request" for name in _HTTP},
    **{f"subprocess.{name}": "use asyncio.create_subprocess_exec()" for name in _SUBPROCESS},
    **{f"socket.{name}": "network or name resolution" for name in _SOCKET},
}

# Constructor -> (methods of its value that block, why). A method's own result is known as "<constructor>.<method>".
_OBJECTS: dict[str, tuple[set[str], str]] = {
    "open": (_FILE, "file access"),
    "pathlib.Path": (_PATH, "file access"),
    "requests.Session": ({*_HTTP, "send"}, "network request"),
    "requests.session": ({*_HTTP, "send"}, "network request"),
    "httpx.Client": ({*_HTTP, "send"}, "network request"),
    "socket.socket": ({"connect", "accept", "recv", "recvfrom", "recv_into", "send", "sendall", "sendto"}, "socket"),
    "socket.create_connection": ({"recv", "recvfrom", "recv_into", "send", "sendall"}, "socket"),
    "sqlite3.connect": ({"execute", "executemany", "executescript", "commit"}, "database"),
    "sqlite3.connect.cursor": (
        {"execute", "executemany", "executescript", "fetchone", "fetchmany", "fetchall"},
        "database",
    ),
    "subprocess.Popen": ({"wait", "communicate"}, "waits for a process"),
    "urllib.request.urlopen": ({"read", "readline", "readlines"}, "network request"),
}
_MADE = "made by "  # marks the value of a constructor: "made by open"


def blocking_calls(tree: ast.Module, filename: str) -> tuple[StarvationEntry, ...]:
    """Known blocking calls directly inside `async def` bodies, by line; held_ms is None: nothing was measured.

    Import aliases, shadowed names and values bound in the same function (`f = open(...)`) are resolved. A socket that
    the function makes non-blocking is left out.
    """
    audit = _SourceAudit(filename)
    audit.visit_body(tree, "", _Scope(None, {}), coroutine=False)
    return tuple(sorted(audit.found, key=lambda each: each.line))


@dataclass(slots=True)
class _Scope:
    """What names mean: a dotted path, "made by <constructor>", or None for something else."""

    outer: _Scope | None
    names: dict[str, str | None]
    non_blocking: set[str] = field(default_factory=set)
    is_class: bool = False

    def meaning(self, name: str) -> str | None:
        scope: _Scope | None = self
        first = True
        while scope is not None:
            if name in scope.names and (first or not scope.is_class):
                return scope.names[name]
            scope, first = scope.outer, False
        return name if name in ("open", "input") else None


class _SourceAudit:
    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.found: list[StarvationEntry] = []

    def visit_body(self, node: Any, qualname: str, scope: _Scope, coroutine: bool) -> None:
        """The statements of a module, class or function whose own scope is `scope`."""
        own = [each for statement in node.body for each in _own_nodes(statement)]
        _bind(own, scope)
        for each in own:
            if coroutine and isinstance(each, ast.Call):
                self._look_at(each, qualname, scope)
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._enter(each, qualname, scope)

    def _enter(self, node: Any, qualname: str, scope: _Scope) -> None:
        is_class = isinstance(node, ast.ClassDef)
        name = f"{qualname}.{node.name}" if qualname else node.name
        inner = _Scope(scope, {} if is_class else dict.fromkeys(_parameters(node.args)), is_class=is_class)
        coroutine = isinstance(node, ast.AsyncFunctionDef)
        self.visit_body(node, name if is_class else f"{name}.<locals>", inner, coroutine)

    def _look_at(self, call: ast.Call, qualname: str, scope: _Scope) -> None:
        what, why = _blocking(call.func, scope)
        if what:
            function = qualname.removesuffix(".<locals>")
            detail = f"{what}() blocks the loop: {why}"
            self.found.append(StarvationEntry(self.filename, call.lineno, function, None, detail))


def _blocking(function: ast.expr, scope: _Scope) -> tuple[str, str]:
    dotted = _dotted(function, scope)
    if dotted in _BLOCKING:
        return dotted, _BLOCKING[dotted]
    if isinstance(function, ast.Attribute):
        receiver = function.value
        maker = (_dotted(receiver, scope) or "").removeprefix(_MADE)
        methods, why = _OBJECTS.get(maker, (set[str](), ""))
        quiet = isinstance(receiver, ast.Name) and receiver.id in scope.non_blocking
        made = (_dotted(receiver, scope) or "").startswith(_MADE)
        if made and function.attr in methods and not quiet:
            return f"{maker}().{function.attr}", why
    return "", ""


def _dotted(node: ast.expr, scope: _Scope) -> str | None:
    """The dotted path that an expression names, "made by X" for a call of a known constructor X, else None."""
    if isinstance(node, ast.Name):
        return scope.meaning(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, scope)
        return f"{base}.{node.attr}" if base else None
    if isinstance(node, ast.Call):
        maker = (_dotted(node.func, scope) or "").removeprefix(_MADE)
        return _MADE + maker if maker in _OBJECTS else None
    return None


def _own_nodes(statement: ast.AST) -> list[ast.AST]:
    """Nodes that run in this scope: of nested functions only decorators and defaults, of lambdas defaults."""
    found: list[ast.AST] = []
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        found.append(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.ClassDef):
            todo += [*node.decorator_list, *node.bases]
        elif isinstance(node, ast.Lambda):
            todo += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        else:
            todo += list(ast.iter_child_nodes(node))
    return sorted(found, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))


def _parameters(args: ast.arguments) -> list[str]:
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    return [each.arg for each in named]


def _bind(nodes: list[ast.AST], scope: _Scope) -> None:
    """Put into the scope what its statements bind: imports, definitions, values of known constructors, others."""
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _bind_import(node, scope)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.names[node.name] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            scope.names.setdefault(node.id, None)
    for node in nodes:
        _bind_made(node, scope)


def _bind_import(node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
    for alias in node.names:
        if isinstance(node, ast.Import):
            first = alias.name.partition(".")[0]
            scope.names[alias.asname or first] = alias.name if alias.asname else first
        elif node.module and not node.level:
            scope.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        else:
            scope.names[alias.asname or alias.name] = None


def _bind_made(node: ast.AST, scope: _Scope) -> None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        _bind_value(node.targets[0], node.value, scope)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        _bind_value(node.target, node.value, scope)
    elif isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is not None:
                _bind_value(item.optional_vars, item.context_expr, scope)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        off = node.func.attr in ("setblocking", "settimeout") and node.args
        if off and isinstance(node.args[0], ast.Constant) and node.args[0].value in (False, 0):
            scope.non_blocking.add(node.func.value.id)


def _bind_value(target: ast.expr, value: ast.expr, scope: _Scope) -> None:
    if isinstance(target, ast.Name):
        scope.names[target.id] = _dotted(value, scope)
