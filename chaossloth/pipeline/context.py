"""What the phases of an investigation share: the result so far, the worker, the observer, the clock.

`describe` is phase 0: what is investigated, and how it was chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from chaossloth.config import VERSION, Options
from chaossloth.evidence import LABELS, Bounds, Finding, Investigation, Label, Target, Trace, Verdict
from chaossloth.fingerprint import fingerprint
from chaossloth.report.progress import PHASES, Observer
from chaossloth.report.terminal import phase_lines
from chaossloth.subject.isolate import Limits, Worker
from chaossloth.subject.locate import Located, own_modules

__all__ = ["Context", "decode"]

_T = TypeVar("_T")


def decode(kind: type[_T], value: Any) -> _T:
    """A value of `kind` from its JSON form."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


class Context:
    """State and services of one investigation."""

    def __init__(self, options: Options, observer: Observer, located: Located) -> None:
        self.options = options
        self.observer = observer
        self.located = located
        self.path = located.path
        self.source = self.path.read_bytes()
        self.deadline = perf_counter() + options.budget_s
        self.labels: tuple[Label, ...] = LABELS[: LABELS.index(options.needs) + 1]
        self.worker = Worker(Limits(options.step_limit_s, options.memory_mb << 20, max(60.0, options.budget_s * 3)))
        self.figures: dict[Label, dict[str, Any]] = {}
        self.swept: dict[Label, dict[str, Any]] = {}  # of the cancellation sweep
        self.result = Investigation(
            version=VERSION,
            command=options.command,
            target=Target(str(self.path)),
            fingerprint=fingerprint(self.path, self.source),
            outcome="inconclusive",
            cause="",
            verdict=Verdict("inconclusive", Bounds((), seeds=0, durations="none made"), 0, {}),
        )
        self.timings: dict[str, float] = {}
        self.patched: dict[str, str] = {}
        self.analysed = {str(self.path): self.source}
        self.phase = 0
        self.unrepeatable = False
        self.audited: dict[str, Any] = {}  # what the natural runs showed
        self.searching: Mapping[str, Any] | None = None  # the last that a search under way told of itself
        self.diagnosed: dict[str, Any] | None = None
        self.failing: Trace | None = None  # of the finding, and the texts of the files that it passes through
        self.sources: dict[str, str] = {}
        self.not_a_race_token: str | None = None
        self.is_own = own_modules(located.context.root)

    def _add(self, **changes: Any) -> None:
        self.result = dataclasses.replace(self.result, **changes)

    def _note(self, text: str) -> None:
        if text not in self.result.notes:
            self._add(notes=(*self.result.notes, text))
            self.observer.note(text)

    @contextmanager
    def _phase(self, number: int) -> Iterator[None]:
        name = PHASES[number]
        self.phase = number
        self.observer.phase_started(number, name)
        started = perf_counter()
        yield
        self.timings[name] = round(perf_counter() - started, 4)
        self.observer.phase_done(number, name, self._lines(number))

    def _lines(self, number: int) -> list[str]:
        sources = {str(self.path): self.located.source}
        return phase_lines(self.result, verbosity=self.options.verbosity, sources=sources)[number]

    def _call(self, op: str, on_progress: Callable[[Any], None] | None = None, **args: Any) -> dict[str, Any]:
        return self.worker.call(op, args, on_progress)

    def _left(self, share: float = 1.0) -> float:
        return max(0.2, (self.deadline - perf_counter()) * share)

    def _finding(self, **changes: Any) -> None:
        self._add(findings=(dataclasses.replace(self.result.findings[0], **changes), *self.result.findings[1:]))

    @property
    def found(self) -> Finding | None:
        return self.result.findings[0] if self.result.findings else None

    def _describe(self) -> None:
        self._open()
        sentence = self._triage() if self._is_open_choice() else ""
        described = self._call("describe")
        described["target"]["how_chosen"] += sentence
        self._add(target=decode(Target, described["target"]), notes=(*self.result.notes, *described["notes"]))
        self.observer.phase_started(0, PHASES[0])
        self.observer.phase_done(0, PHASES[0], self._lines(0))

    def _is_open_choice(self) -> bool:
        """Discovery found several things to run, and none that says itself when it goes wrong."""
        choices = self.located.choices
        named = self.options.methods or (self.options.target or "").count("::")
        return len(choices) > 1 and not named and choices[0].name not in ("scenario", "main")

    def _triage(self) -> str:
        def progress(p: Mapping[str, Any]) -> None:
            self.observer.progress(f"short search of choice {p['tried']} of {p['total']}", p["tried"], p["total"])

        answer = self._call("triage", progress, seconds=self._left(0.4), seed=self.options.seed)
        tried = f"{answer['tried']} of {answer['total']} choices"
        if answer["failing"]:
            return f"; it is the first that fails in a short search ({tried} tried)"
        return f"; no choice failed in a short search ({tried} tried)"

    def _open(self) -> None:
        options = self.options
        spec = {
            "include": list(options.include),
            "setup": options.setup,
            "calls": options.calls,
            "args": list(options.args),
            "cancellation": options.cancel,
        }
        self._call("open", None, **self.located.to_json(), **spec)
