"""The worker process, `python -m chaossloth.worker`, started by `subject.isolate.Worker`: runs the subject on request.

Order matters here: the deterministic sources are installed before anything of the subject is imported, so that its
`from random import uniform` binds what a run can own.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from chaossloth.errors import ToolError
from chaossloth.evidence import Target, as_json
from chaossloth.explore.execute import run_alone
from chaossloth.loop import real_io, uvloops, virtual
from chaossloth.subject import creation_order
from chaossloth.subject.calls import CallSpec
from chaossloth.subject.channel import guard, serve
from chaossloth.subject.entry import Program, build_program
from chaossloth.subject.loader import Loader
from chaossloth.subject.locate import Choice, Located
from chaossloth.subject.oracle import different_behaviour
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import recorder
from chaossloth.subject.recorder import short_text
from chaossloth.trials import Trials

__all__ = ["Subject", "main"]

_PRIMITIVES = (asyncio.Lock, asyncio.Event, asyncio.Condition, asyncio.Semaphore, asyncio.Queue, asyncio.Barrier)
_SHOWN = 6  # names of what was not chosen


class Subject:
    """The located subject in this process; loads its variants."""

    def __init__(self) -> None:
        self._located: Located | None = None
        self._loader: Loader | None = None
        self._program: Program | None = None
        self._original: Program | None = None
        self._selected = 0
        self._instrumented = False
        self._spec = CallSpec()

    def open(
        self,
        include: Sequence[str],
        setup: str | None,
        calls: int,
        args: Sequence[str],
        cancellation: bool = False,
        **located: Any,
    ) -> dict[str, Any]:
        """Take what `locate` found in the command's process; look up --include packages. Nothing is imported yet."""
        self._located = Located.from_json(located)
        self._loader = Loader(self._located.context, list(include))
        self._spec = CallSpec(calls, tuple(args), setup, cancellation)
        guard.is_subject = self.is_subject
        watch.is_subject = self.is_subject
        watch.recorder = recorder
        return {}

    def program(self, instrumented: bool, overrides: Mapping[str, str]) -> Program:
        """The program of one variant, ready to be executed; the primitives are watched only where it is instrumented.

        A patched variant is called with the arguments that the original was given.
        """
        self._load(instrumented, overrides)
        program = self._build(like=self._original if overrides else None)
        if not overrides:
            self._original = program
        return program

    def _load(self, instrumented: bool, overrides: Mapping[str, str]) -> None:
        if self._loader is None:
            raise ToolError("a program was asked for before open()")
        self._instrumented = instrumented
        if instrumented:
            watch.install()
            creation_order.install()
        else:
            watch.uninstall()
            creation_order.uninstall()
        self._loader.load(instrumented, overrides)

    def _build(self, like: Program | None = None) -> Program:
        assert self._loader is not None
        program = build_program(self.choice, self._loader, self._spec, like)
        program.prepare(_Alone(recording=self._instrumented))
        self._program = program
        return program

    @property
    def choice(self) -> Choice:
        """What of the file is run: the first of `locate`'s choices, or the one that `select` took."""
        assert self._located is not None
        return self._located.choices[self._selected]

    def choices(self) -> int:
        assert self._located is not None
        return len(self._located.choices)

    def select(self, index: int) -> Program:
        """Take another of the choices, on the module as it is loaded. Raises UsageError where it cannot be run."""
        self._selected = index
        return self._build()

    def refresh(self) -> Program:
        """The present program with its modules' state made new."""
        assert self._loader is not None and self._program is not None
        self._loader.reload()
        return self._program

    def is_subject(self, filename: str) -> bool:
        return self._loader is not None and self._loader.is_subject(filename)

    def describe(self) -> dict[str, Any]:
        """What is executed, for the report."""
        located, loader, program = self._located, self._loader, self._program
        assert located is not None and loader is not None and program is not None
        choice = self.choice
        calls = choice.kind == "calls"
        target = Target(
            path=str(located.path),
            cls=choice.cls if calls else None,
            methods=choice.methods if calls else (),
            test=None if calls else choice.name,
            calls=self._spec.calls,
            arguments=program.arguments,
            how_chosen=located.how_chosen if self._selected == 0 else f"{choice.name} (line {choice.line})",
        )
        notes = [*program.notes, *loader.notes]
        passed_over = [each for each in located.alternatives if each != choice.name]
        if passed_over:
            more = len(passed_over) - _SHOWN
            notes.append(f"not chosen: {', '.join(passed_over[:_SHOWN])}" + (f" and {more} more" if more > 0 else ""))
        return {"target": as_json(target), "notes": list(dict.fromkeys(notes))}

    def _own_modules(self) -> list[Any]:
        files = [(module, getattr(module, "__file__", None)) for module in list(sys.modules.values())]
        return [module for module, file in files if isinstance(file, str) and self.is_subject(file)]

    def shared_primitives(self) -> frozenset[str]:
        """Names of the asyncio primitives that the present variant keeps on its modules and classes."""
        found = set()
        for module in self._own_modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, _PRIMITIVES):
                    found.add(f"{module.__name__}.{name}")
                elif isinstance(value, type) and value.__module__ == module.__name__:
                    found |= {f"{value.__qualname__}.{n}" for n, v in vars(value).items() if isinstance(v, _PRIMITIVES)}
        return frozenset(found)

    def unobserved(self) -> frozenset[str]:
        """State of the object under test that the oracle cannot compare."""
        calls = self._program.calls if self._program is not None else None
        return frozenset(calls.opaque) if calls is not None else frozenset()

    def foreign_packages(self) -> frozenset[str]:
        """Installed packages with asynchronous code that the subject's modules use; their accesses are not recorded."""
        found = set()
        for module in self._own_modules():
            for value in list(vars(module).values()):
                name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
                home = sys.modules.get(name) if isinstance(name, str) else None
                file = getattr(home, "__file__", None)
                if (
                    isinstance(file, str)
                    and "-packages" in file
                    and not self.is_subject(file)
                    and _is_asynchronous(value)
                ):
                    found.add(str(name).partition(".")[0])
        return frozenset(found - {"uvloop"})  # it is replaced, and that is said

    def skipped(self) -> tuple[str, ...]:
        """Functions of the present variant that could not be instrumented, so that what they do is not recorded."""
        return self._loader.skipped if self._loader is not None else ()

    @staticmethod
    def show(result: Any) -> str:
        """Short text of a scenario's result; outcomes of concurrent calls are compared by the oracle."""
        return "" if hasattr(result, "flat") else short_text(result)

    @staticmethod
    def behaviour_changed(before: Program, after: Program) -> str | None:
        """A sentence where two programs' calls, one after another, do not have the same outcomes."""
        if before.serial is None or after.serial is None:
            return None
        return different_behaviour(before.serial, after.serial)


class _Alone:
    """Runs one coroutine after the other by itself; where accesses are recorded, it knows if modules were written."""

    def __init__(self, recording: bool) -> None:
        self._recording = recording
        self._stale = True

    def __call__(self, coro: Coroutine[Any, Any, Any], seed: int, /) -> Any:
        self._stale = True
        try:
            return run_alone(coro, seed, record=self._recording)
        finally:
            self._stale = not self._recording or bool(recorder.persistent_writes)

    def stale(self) -> bool:
        """Whether the next run needs fresh modules."""
        return self._stale


def _is_asynchronous(value: Any) -> bool:
    """A coroutine function, a class with one, or a module that holds one of these."""
    if inspect.ismodule(value):
        return any(_is_asynchronous(each) for each in list(vars(value).values()) if not inspect.ismodule(each))
    if isinstance(value, type):
        return any(inspect.iscoroutinefunction(each) for each in list(vars(value).values()))
    return inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)


def main() -> None:
    virtual.install()
    uvloops.install()
    sys.addaudithook(real_io.audit)
    subject = Subject()
    serve({"open": subject.open, **Trials(subject).operations()})


if __name__ == "__main__":
    main()
