"""The pattern behind a critical pair, in the field's words, and the evidence that a repair needs.

What decides is the order of the accesses that the racing tasks made to the contested location in the failing run. A
task whose own accesses T1, T2 lie in different steps, with another task's access U between them, was interrupted in
the middle of something. The unserializable triples (T1 U T2) are the four of Lu, Tucek, Qin, Zhou, "AVIO" (ASPLOS
2006):

    R W R  stale read or broken check     W W R  own write lost before it was read
    R W W  lost update, check-then-act    W R W  intermediate state seen

Whether the first read of `R W *` is a check is asked of the source: it stands in the test of an `if` or `while`, or in
an assignment whose name is tested before the second access. The names are conservative: where neither the accesses nor
the source say more, the answer is `order-violation` (no interrupted task) or `atomicity-violation`.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chaossloth.evidence import Access, CriticalAccess, DeadlockReport, Frame, Mode, Step, Trace

__all__ = ["PATTERNS", "Diagnosis", "Touch", "classify", "diagnose", "touches_of"]

PATTERNS = (
    "lost-update",
    "check-then-act",
    "stale-read",
    "iteration-invalidated",
    "use-before-init",
    "lost-wakeup",
    "deadlock-lock-order",
    "self-deadlock",
    "atomicity-violation",
    "order-violation",
    "unclassified",
)
_CHANGED = re.compile(r"(changed size|changed|mutated) during iteration")
_ABSENT = frozenset({"AttributeError", "KeyError", "NameError", "UnboundLocalError", "TypeError", "IndexError"})
_DEADLOCKS = {
    "self-deadlock": ("self-deadlock", "a task waits for something that only itself can provide"),
    "cycle": ("deadlock-lock-order", "the tasks hold what the others wait for"),
    "lost-wakeup": ("lost-wakeup", "the wake-up came before the wait, and no other will come"),
    "all-waiting": ("lost-wakeup", "all tasks wait and nothing is left that could wake them"),
}


@dataclass(frozen=True, slots=True)
class Touch:
    """One access to the contested location in the failing run. order: position among all touches."""

    proc: str
    task: str
    step: int
    order: int
    mode: Mode
    name: str
    value: str | None
    stack: tuple[Frame, ...]

    @property
    def writes(self) -> bool:
        return self.mode != "read"

    @property
    def reads(self) -> bool:
        return self.mode != "write"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What repair starts from: the named pattern, the critical pair (failing order), all accesses of the racing tasks
    to the contested location in the failing run, and the texts of the subject's own files {absolute path: text}."""

    pattern: str
    pair: tuple[CriticalAccess, ...]
    touches: tuple[Touch, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    explanation: str = ""


def diagnose(
    pair: Sequence[CriticalAccess], trace: Trace, sources: Mapping[str, str], deadlock: DeadlockReport | None = None
) -> Diagnosis:
    """Classify and keep the evidence. Without a pair (no single reversal flipped the outcome) the best interrupted
    transition of the run stands in for it; a deadlock has none."""
    if len(pair) < 2 and deadlock is None and trace.outcome.failure not in ("deadlock", "livelock"):
        pair = _substitute(trace)
    pattern, explanation = classify(pair, trace, sources, deadlock)
    return Diagnosis(pattern, tuple(pair), touches_of(pair, trace), dict(sources), explanation)


def touches_of(pair: Sequence[CriticalAccess], trace: Trace) -> tuple[Touch, ...]:
    """Every access in the run to a location of the pair; the pair itself where the trace holds none of it."""
    locations = {
        access.location
        for critical in pair
        for step in trace.steps
        for access in step.accesses
        if access.name == critical.object
        and access.mode == critical.access
        and critical.step in (-1, step.index)
        and (not access.stack or access.stack[0].line == critical.line)
    }
    found: list[Touch] = []
    for step in trace.steps:
        for access in step.accesses:
            if access.location in locations and not access.sync:
                found.append(_touch(step, access, len(found)))
    if found:
        return tuple(found)
    return tuple(
        Touch(c.task, c.task, c.step, order, c.access, c.object, c.value, _stack(c)) for order, c in enumerate(pair)
    )


def _substitute(trace: Trace) -> tuple[CriticalAccess, ...]:
    """First and second access of the best T1 U T2 over all locations of the run; empty when no task was interrupted."""
    by_location: dict[str, list[Touch]] = {}
    for step in trace.steps:
        for access in step.accesses:
            if not access.sync and access.stack:
                found = by_location.setdefault(access.location, [])
                found.append(_touch(step, access, len(found)))
    triples = [t for touches in by_location.values() if (t := _interrupted((), touches))]
    if not triples:
        return ()
    best = min(triples, key=lambda t: (not t[2].writes, t[0].step))
    return tuple(
        CriticalAccess(
            t.stack[0].file, t.stack[0].line, t.task, t.mode, t.name, t.stack[0].function, t.value, t.stack, t.step
        )
        for t in best[:2]
    )


def _touch(step: Step, access: Access, order: int) -> Touch:
    return Touch(step.proc, step.task, step.index, order, access.mode, access.name, access.value, access.stack)


def _stack(critical: CriticalAccess) -> tuple[Frame, ...]:
    return critical.stack or (Frame(critical.file, critical.line, critical.function),)


def classify(
    pair: Sequence[CriticalAccess],
    trace: Trace,
    sources: Mapping[str, str],
    deadlock: DeadlockReport | None = None,
) -> tuple[str, str]:
    """(pattern, one sentence) for a failing run. The sentence names tasks, lines and the location, no remedies."""
    if deadlock is not None or trace.outcome.failure == "deadlock":
        kind = deadlock.kind if deadlock else "all-waiting"
        pattern, why = _DEADLOCKS.get(kind, ("unclassified", "nothing can ever run again"))
        return pattern, f"{pattern.replace('-', ' ').capitalize()}: {(deadlock and deadlock.sentence) or why}."
    if len(pair) < 2:
        return "unclassified", "No pair of conflicting accesses decides the outcome."
    first, second = pair[0], pair[1]
    lines = _Lines(sources)
    if _iteration(pair, trace, lines):
        reader, writer = (first, second) if first.access == "read" else (second, first)
        return "iteration-invalidated", (
            f"{writer.object} is changed by {writer.task} ({_at(writer)}) "
            f"while {reader.task} is suspended in its iteration over it ({_at(reader)})."
        )
    touches = touches_of(pair, trace)
    interrupted = _interrupted(pair, touches)
    if interrupted:
        return _atomicity(interrupted, lines)
    unfinished = _unfinished(pair, touches, lines)
    if unfinished:
        return unfinished
    if _in_use(first, second, trace, lines):
        return "stale-read", (
            f"{first.task} is suspended in a call on the {first.object} that it read ({_at(first)}) "
            f"when {second.task} replaces it ({_at(second)})."
        )
    if _before_init(first, second, trace, touches):
        return "use-before-init", (
            f"{first.task} uses {first.object} ({_at(first)}) before {second.task} has set it ({_at(second)})."
        )
    return "order-violation", (
        f"{first.task}'s {first.access} of {first.object} ({_at(first)}) comes before "
        f"{second.task}'s {second.access} ({_at(second)}); nothing in the program orders the two."
    )


Triple = tuple[Touch, Touch, Touch]


def _interrupted(pair: Sequence[CriticalAccess], touches: Sequence[Touch]) -> Triple | None:
    """The best T1 U T2: adjacent accesses of one proc in different steps, a conflicting one of another between them.

    Triples that hold an access of the critical pair come first, then those that end in a write (their damage stays).
    """
    critical = {(c.step, c.line) for c in pair}
    found: list[tuple[tuple[int, int, int], Triple]] = []
    by_proc: dict[str, list[Touch]] = {}
    for touch in touches:
        by_proc.setdefault(touch.proc, []).append(touch)
    for own in by_proc.values():
        for before, after in _adjacent(own):
            for other in touches:
                if other.proc == before.proc or not before.order < other.order < after.order:
                    continue
                if _serializable(before, other, after):
                    continue
                triple = (before, other, after)
                hits = sum((t.step, t.stack[0].line if t.stack else 0) in critical for t in triple)
                found.append(((-hits, not after.writes, before.order), triple))
    return min(found, key=lambda item: item[0])[1] if found else None


def _unfinished(pair: Sequence[CriticalAccess], touches: Sequence[Touch], lines: _Lines) -> tuple[str, str] | None:
    """A read whose task failed before it could act: what the same line leads to is known from another task or the
    source.

    The second access then never happened in this run, so there is no triple; the transition was interrupted all the
    same.
    """
    first, second = pair[0], pair[1]
    if first.access != "read" or second.access == "read":
        return None
    before = next((t for t in touches if t.step == first.step and t.stack and t.stack[0].line == first.line), None)
    if before is None:
        return None
    story = f"{first.task} reads {first.object} ({_at(first)}) and {second.task} writes it ({_at(second)})"
    for after in _acts_of_others(before, touches):
        if lines.is_check(before, after):
            return "check-then-act", f"{story} before {first.task} acts on what it tested (as at {_place(after)})."
        return "lost-update", f"{story} before {first.task} writes what it computed from it (as at {_place(after)})."
    if lines.guards_await(before):
        return "check-then-act", f"{story} while {first.task} is suspended in what that test guards."
    return None


def _acts_of_others(read: Touch, touches: Sequence[Touch]) -> Iterable[Touch]:
    """Writes with which another task followed its own read at the same line, after a suspension."""
    for early in touches:
        if early.proc != read.proc and early.reads and early.stack[:1] == read.stack[:1]:
            yield from (t for t in touches if t.proc == early.proc and t.step > early.step and t.writes)


def _adjacent(own: Sequence[Touch]) -> Iterable[tuple[Touch, Touch]]:
    """Last access of a step with every access of the next step that touches: T1 is read-like when the step reads."""
    steps = sorted({t.step for t in own})
    for early, late in zip(steps, steps[1:], strict=False):
        befores = [t for t in own if t.step == early]
        afters = [t for t in own if t.step == late]
        yield from ((b, a) for b in befores for a in afters)


def _serializable(before: Touch, other: Touch, after: Touch) -> bool:
    if other.writes:
        return not (before.reads or after.reads)
    return not (before.writes and after.writes)


def _atomicity(triple: Triple, lines: _Lines) -> tuple[str, str]:
    before, other, after = triple
    task, name = before.task, before.name
    story = (
        f"{task} {_verb(before)} {name} ({_place(before)}) and {_verb(after)} it after an await ({_place(after)}); "
        f"{other.task} {_verb(other)} it in between ({_place(other)})"
    )
    if other.writes and before.reads and not (before.writes and not after.writes):
        if lines.is_check(before, after):
            return "check-then-act", f"{story}, so what {task} tested no longer holds when it acts."
        if after.writes:
            return "lost-update", f"{story}, and that change is overwritten with a value computed before it."
        return "stale-read", f"{story}, so {task} works with two different values."
    if other.writes:
        return "atomicity-violation", f"{story}, so what {task} wrote is gone before it uses it."
    return "atomicity-violation", f"{story}, and sees an intermediate state."


def _verb(touch: Touch) -> str:
    return {"read": "reads", "write": "writes", "update": "updates"}[touch.mode]


def _before_init(first: CriticalAccess, second: CriticalAccess, trace: Trace, touches: Sequence[Touch]) -> bool:
    """A use that found nothing there: read first, written later by another task for the first time, and it failed."""
    said = {trace.outcome.exception or "", *re.findall(r"\w+Error", trace.outcome.message)}
    if first.access == "write" or second.access == "read" or not said & _ABSENT:
        return False
    reader = next((t for t in touches if t.step == first.step), None)
    earlier_writes = [t for t in touches if t.writes and reader is not None and t.order < reader.order]
    return first.value in (None, "None") and len(earlier_writes) <= 1


def _in_use(first: CriticalAccess, second: CriticalAccess, trace: Trace, lines: _Lines) -> bool:
    """The read's own statement awaits, and its task went on only after the other's write."""
    if first.access != "read" or second.access == "read" or first.step < 0:
        return False
    proc = next((s.proc for s in trace.steps if s.index == first.step), None)
    between = [s for s in trace.steps if s.proc == proc and s.index > second.step]
    return bool(between) and lines.awaits_at(_stack(first)[0])


def _iteration(pair: Sequence[CriticalAccess], trace: Trace, lines: _Lines) -> bool:
    """The interpreter says so, or a loop that awaits in its body iterates where the other task writes."""
    modes = {c.access for c in pair}
    if not (modes & {"write", "update"}):
        return False
    if _CHANGED.search(trace.outcome.message):
        return True
    readers = [c for c in pair if c.access == "read"]
    return any(lines.iterates_over_await(_stack(c)[0]) for c in readers)


def _at(critical: CriticalAccess) -> str:
    return f"line {critical.line}" if not critical.file else f"{os.path.basename(critical.file)}:{critical.line}"


def _place(touch: Touch) -> str:
    return f"{os.path.basename(touch.stack[0].file)}:{touch.stack[0].line}" if touch.stack else "unknown line"


class _Lines:
    """Questions to the source at a line; answers False where the source is not known or does not parse."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse(self._sources[path].removeprefix("\ufeff"))
            except (KeyError, SyntaxError, ValueError):
                self._trees[path] = None
        return self._trees[path]

    def iterates_over_await(self, frame: Frame) -> bool:
        """The line is the header of a `for` (or a comprehension's source) whose body awaits."""
        for node in self._nodes(frame):
            if isinstance(node, ast.For) and _covers(node.iter, frame.line):
                return _awaits(node.body)
            if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and _awaits([node]):
                return any(_covers(g.iter, frame.line) for g in node.generators)
        return False

    def awaits_at(self, frame: Frame) -> bool:
        """Does the innermost statement at the line await?"""
        found = [n for n in self._nodes(frame) if isinstance(n, ast.stmt)]
        return bool(found) and _awaits([max(found, key=lambda n: n.lineno)])

    def is_check(self, before: Touch, after: Touch) -> bool:
        """Is `before` a test that stands before `after`, in any function that both stacks share?"""
        later = {(f.file, f.function): f.line for f in after.stack}
        return any(self._tests(frame, later.get((frame.file, frame.function))) for frame in before.stack)

    def guards_await(self, before: Touch) -> bool:
        """Does the read stand in the test of an `if` or `while` with an await in its body?"""
        nodes = [(n, f.line) for f in before.stack for n in self._nodes(f) if isinstance(n, (ast.If, ast.While))]
        return any(_covers(node.test, line) and _awaits(node.body) for node, line in nodes)

    def _tests(self, frame: Frame, until: int | None) -> bool:
        if until is None:
            return False
        names: set[str] = set()
        for node in self._nodes(frame):
            if isinstance(node, (ast.If, ast.While)) and _covers(node.test, frame.line) and until >= frame.line:
                return True
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _covers(node, frame.line):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if not names:
            return False
        tree = self.tree(frame.file)
        tests = [n for n in ast.walk(tree) if isinstance(n, (ast.If, ast.While))] if tree else []
        return any(
            frame.line <= node.lineno <= until
            and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node.test))
            for node in tests
        )

    def _nodes(self, frame: Frame) -> list[ast.AST]:
        tree = self.tree(frame.file)
        nodes = ast.walk(tree) if tree is not None else iter(())
        return [n for n in nodes if isinstance(n, (ast.stmt, ast.expr)) and _covers(n, frame.line)]


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _awaits(nodes: Sequence[ast.AST]) -> bool:
    kinds = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(isinstance(n, kinds) for node in nodes for n in ast.walk(node))
