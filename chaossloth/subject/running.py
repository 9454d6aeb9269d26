"""What `entry` and `calls` share: names looked up in the present module, awaiting, runs alone, exceptions as text."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import ModuleType, TracebackType
from typing import Any, Protocol

from chaossloth.errors import ToolError, UsageError
from chaossloth.evidence import Frame

__all__ = [
    "FreshRunner",
    "ModuleSource",
    "Runner",
    "attempt_alone",
    "await_anything",
    "error_text",
    "file_name",
    "finish",
    "innermost",
    "innermost_own",
    "let_ready_run",
    "refuse_parameters",
    "resolve",
    "settle",
    "setup_function",
    "shown_error",
]

_SETTLE_ROUNDS = 20
_MAX_YIELDS = 20  # more than a fair scheduler may pass a ready callback over


class ModuleSource(Protocol):
    """What holds the loaded module (`loader.Loader`)."""

    @property
    def module(self) -> ModuleType: ...

    def is_subject(self, filename: str) -> bool: ...

    def reload(self) -> ModuleType: ...


class Runner(Protocol):
    """Executes one coroutine alone, in FIFO order, and returns its result or raises its exception.

    seed: decides random sources; another seed must also shift the clock, so that values made from time are seen to
    differ between two sequential runs. A run that can never end raises instead of hanging.
    """

    def __call__(self, coro: Coroutine[Any, Any, Any], seed: int, /) -> Any: ...


async def await_anything(value: Any) -> Any:
    """The value, awaited where it can be."""
    return await value if inspect.isawaitable(value) else value


def error_text(error: BaseException) -> str:
    """`str(error)`, also where the subject's own `__str__` is broken; at most 2,000 characters."""
    try:
        return str(error)[:2000]
    except Exception as inner:  # the subject's own __str__
        return f"<its text raises {type(inner).__qualname__}>"


def innermost(trace: TracebackType | None, is_subject: Callable[[str], bool]) -> Frame | None:
    """The deepest frame of a traceback that is the subject's; the deepest of all when none is."""
    return innermost_own(trace, is_subject) or innermost_own(trace, lambda _: True)


def innermost_own(trace: TracebackType | None, is_subject: Callable[[str], bool]) -> Frame | None:
    """The deepest frame of a traceback that is the subject's; None when none is."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_subject(code.co_filename):
            found = Frame(code.co_filename, trace.tb_lineno or 0, code.co_qualname)
        trace = trace.tb_next
    return found


def file_name(source: ModuleSource) -> str:
    """Base name of the subject's file."""
    return str(getattr(source.module, "__file__", source.module.__name__)).rpartition("/")[2]


def resolve(module: ModuleType, dotted: str) -> Any:
    """What a dotted name means in the loaded module. Raises UsageError when there is no such thing."""
    value: Any = module
    for part in dotted.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            where = str(getattr(module, "__file__", module.__name__)).rpartition("/")[2]
            raise UsageError(f"there is no {dotted!r} in {where} once it is imported; check the name") from None
    return value


def refuse_parameters(name: str, function: Callable[..., Any]) -> None:
    """Raises UsageError when the function cannot be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    if missing:
        raise UsageError(
            f"{name} takes {', '.join(missing)}, which a fixture or a caller has to give; "
            "name a function without parameters that calls it"
        )


async def finish(result: Any) -> Any:
    """What calling a method means: await it, iterate an asynchronous generator, enter and leave a context manager."""
    if hasattr(result, "__aiter__"):
        return [item async for item in result]
    if hasattr(result, "__aenter__") and not inspect.isawaitable(result):
        async with result as entered:
            return entered
    return await await_anything(result)


class FreshRunner:
    """A runner that executes the subject's modules anew before each run, unless `run.stale()` says that no earlier run
    wrote their state."""

    def __init__(self, source: ModuleSource, run: Runner) -> None:
        self._source, self._run = source, run

    def __call__(self, coro: Coroutine[Any, Any, Any], seed: int, /) -> Any:
        stale = getattr(self._run, "stale", None)
        try:
            if stale is None or stale():
                self._source.reload()
        except BaseException:
            coro.close()
            raise
        return self._run(coro, seed)


async def settle(before: set[asyncio.Task[Any]], timeout: float | None) -> bool:
    """Wait for tasks that the calls left behind. True when none is left."""
    current = asyncio.current_task()
    for _ in range(_SETTLE_ROUNDS):
        left = asyncio.all_tasks() - before - {current}
        if not left:
            return True
        # Not gather: it would retrieve exceptions that nobody else does.
        _, pending = await asyncio.wait(left, timeout=timeout)
        if pending:
            return False
    return False


async def let_ready_run() -> None:
    """Let what is ready run, and what that makes ready, until nothing is; given up after some rounds.

    On a loop that does not show its ready queue, that number of rounds.
    """
    loop = asyncio.get_running_loop()
    for _ in range(_MAX_YIELDS):
        ready = getattr(loop, "_ready", None)
        if ready is not None and all(handle._cancelled for handle in ready):
            return
        await asyncio.sleep(0)


def attempt_alone(run: Runner, coro: Coroutine[Any, Any, None], seed: int) -> BaseException | None:
    """Run one try alone; the exception says that it was not accepted."""
    try:
        run(coro, seed)
    except (MemoryError, ToolError):
        raise
    except BaseException as error:  # the subject may raise anything, SystemExit too
        return error
    return None


def shown_error(error: BaseException) -> str:
    lines = error_text(error).splitlines()
    return f"{type(error).__qualname__}{': ' + lines[0] if lines else ''}"


def setup_function(source: ModuleSource, setup: str) -> Callable[[], Any | Awaitable[Any]]:
    """The function of --setup "module:function"; the module may be the file's own."""
    module_name, separator, function_name = setup.partition(":")
    if not separator or not module_name or not function_name:
        raise UsageError(f"--setup {setup!r} is not of the form module:function")
    own = source.module
    if module_name in (own.__name__, own.__name__.rpartition(".")[2], str(own.__file__).rpartition("/")[2][:-3]):
        module = own
    else:
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise UsageError(f"--setup {setup!r}: module {module_name!r} cannot be imported: {error}") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"--setup {setup!r}: there is no function {function_name!r} in {module_name}")
    refuse_parameters(f"--setup {setup}", function)
    result: Callable[[], Any] = function
    return result
