"""Diagnoses built by hand: accesses are named by the source text at which they happen, in the order of a failing
run."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

from chaossloth.diagnose.patterns import Diagnosis, diagnose
from chaossloth.evidence import Access, CriticalAccess, Frame, Outcome, Step, Trace
from chaossloth.repair.candidates import Candidate, Generation, generate_with_reasons

PATH = "/subject/shop.py"


def frame(source: str, snippet: str) -> Frame:
    """The only line that holds the snippet, with the name of the innermost function around it."""
    lines = [n for n, text in enumerate(source.split("\n"), 1) if snippet in text]
    assert len(lines) == 1, (snippet, lines)
    functions = [
        n
        for n in ast.walk(ast.parse(source.removeprefix("\ufeff")))
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.lineno <= lines[0] <= (n.end_lineno or 0)
    ]
    return Frame(PATH, lines[0], functions[-1].name if functions else "<module>")


def diagnosed(
    source: str,
    location: str,
    events: Sequence[tuple[str, str, str]],
    pair: tuple[int, int],
    message: str = "AssertionError",
    pattern: str | None = None,
    exception: str | None = "AssertionError",
) -> Diagnosis:
    """events: (task, "read" | "write" | "update", "innermost snippet < caller's snippet < ..."), one step each.
    pair: indices of the two critical accesses."""
    steps = []
    for index, (task, mode, where) in enumerate(events):
        stack = tuple(frame(source, part.strip()) for part in where.split(" < "))
        access = Access("loc", location, mode, stack)  # type: ignore[arg-type]
        steps.append(Step(index, task, task, index + 1, -1, "wakeup", (access,)))
    critical = []
    for index in pair:
        step = steps[index]
        top = step.accesses[0]
        critical.append(
            CriticalAccess(
                PATH, top.stack[0].line, step.task, top.mode, location, top.stack[0].function, None, top.stack, index
            )
        )
    outcome = Outcome(False, "assertion", exception, message)
    found = diagnose(critical, Trace(tuple(steps), outcome), {PATH: source})
    if pattern is not None:
        assert found.pattern == pattern, (found.pattern, found.explanation)
    return found


def proposed(diagnosis: Diagnosis) -> Generation:
    return generate_with_reasons(diagnosis)


def of_kind(generation: Generation, kind: str) -> list[Candidate]:
    return [c for c in generation.candidates if c.intent.kind == kind]


def text(source: str) -> str:
    return textwrap.dedent(source).lstrip("\n")
