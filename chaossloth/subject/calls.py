"""Concurrent calls of methods on one fresh object, and the same calls one after another.

The calls run as tasks named "A", "B", ... that are created together, as `asyncio.gather` would do; when all are done
the main task reads results and object state. The same driver, one task after the other, yields the sequential outcomes
that the oracle allows. Background tasks which the calls leave behind are waited for before the state is read if they
came to an end in every sequential run; else in none, so that both sides are read alike. What is ready then (a done
callback that cleans up) is let run first: that it comes after the last call and not before is no difference.
Every execution, sequential or concurrent, starts from modules that nobody has used: a cache on a class or in a module
that one run fills would make the next one another program.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import string
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from chaossloth.errors import ChaosSlothError, UsageError
from chaossloth.subject.arguments import (
    Arguments,
    args_example,
    candidates,
    constructor_candidates,
    parse_literals,
    required_parameters,
)
from chaossloth.subject.canonical import Flat, Walker
from chaossloth.subject.oracle import Raised, SerialOutcomes, relabellings, sequential_orders
from chaossloth.subject.record import recorder
from chaossloth.subject.running import (
    FreshRunner,
    ModuleSource,
    Runner,
    attempt_alone,
    await_anything,
    error_text,
    finish,
    innermost,
    let_ready_run,
    resolve,
    settle,
    setup_function,
    shown_error,
)
from chaossloth.subject.sharpening import ending, ends_alike, largest_number, with_number

__all__ = ["CallSpec", "ConcurrentCalls", "Observed", "without_result"]

_SETTLE_S = 0.05
_CONSTRUCTOR_TRIES = 6
_TRY_SEEDS = (1, 2, 3)  # a call may fail by chance
_SEEDS = (1, 2)
_MORE_SEEDS = tuple(range(3, 17))  # for the first order only: randomness that two draws may not show
_REMEDY_SETUP = "give a prepared object with --setup module:function"


@dataclass(frozen=True, slots=True)
class CallSpec:
    """What the user said about concurrent calls. args: Python literals; setup: "module:function"; cancellation: calls
    will be cancelled, so what the others do without one of them is to be known."""

    calls: int = 2
    args: tuple[str, ...] = ()
    setup: str | None = None
    cancellation: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """Outcome of one execution of concurrent calls: flat results and state, and what the calls raised."""

    flat: Flat
    raised: tuple[Raised, ...] = ()


# --- concurrent calls ------------------------------------------------------------------------------------------


def _labels(count: int) -> tuple[str, ...]:
    """A, B, ..., Z, AA, AB, ..."""
    letters = string.ascii_uppercase
    names = [*letters, *(a + b for a in letters for b in letters)]
    return tuple(names[i] if i < len(names) else f"call{i + 1}" for i in range(count))


_SerialRun = tuple[list[Flat], tuple[Raised, ...], bool]
"""Flat outcomes of one order (one per renaming of equal calls), what the calls raised, whether all tasks ended."""


class ConcurrentCalls:
    """N calls of methods on one fresh object: concurrently, or one after another."""

    def __init__(self, source: ModuleSource, cls_name: str, methods: tuple[str, ...], spec: CallSpec) -> None:
        self.source = source
        self.cls_name = cls_name
        self.labels = _labels(spec.calls)
        self.methods = tuple(methods[i % len(methods)] for i in range(spec.calls))
        self.serial: SerialOutcomes | None = None
        self.without: dict[str, SerialOutcomes] = {}  # label of a cancelled call -> what is allowed then
        self.notes: list[str] = []
        self.opaque: set[str] = set()  # state of the object that the oracle cannot look at
        self._setup = spec.setup
        self._cancellation = spec.cancellation
        self._sequential_runs: list[list[_SerialRun]] = []  # per order, one for each seed
        self._given = parse_literals(spec.args)
        self._constructor: Arguments = Arguments()
        self._arguments: tuple[Arguments, ...] = ()
        self._settles = True
        self._blocked: list[str] = []
        self._sharpened = ""
        if spec.setup is not None:
            setup_function(source, spec.setup)

    # -- executing

    async def concurrent(self) -> Observed:
        """The main task of a concurrent execution."""
        before = asyncio.all_tasks()
        owner = await self._make_object()
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._call(owner, index), name=label) for index, label in enumerate(self.labels)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        del tasks
        if self._settles:
            await settle(before, timeout=None)
        await let_ready_run()
        return self._observe(owner, results)

    async def _sequential(self, order: Sequence[int], missing: int | None = None) -> _SerialRun:
        """One sequential order. missing: a call that is not made."""
        before = asyncio.all_tasks()
        owner = await self._make_object()
        results = await self._one_after_another(owner, order)
        settled = await settle(before, timeout=_SETTLE_S)
        await let_ready_run()
        renamings, _ = relabellings(self._groups(missing))
        flats = []
        for renaming in renamings:
            moved = [results[renaming.index(i)] for i in range(len(results))]
            flats.append(self._observe(owner, moved).flat)
        return flats, self._observe(owner, results).raised, settled

    async def _one_after_another(self, owner: Any, order: Sequence[int]) -> list[Any]:
        loop = asyncio.get_running_loop()
        results: list[Any] = [None] * len(self.labels)
        for index in order:
            task = loop.create_task(self._call(owner, index), name=self.labels[index])
            (results[index],) = await asyncio.gather(task, return_exceptions=True)
            del task
        return results

    def _call(self, owner: Any, index: int) -> Coroutine[Any, Any, Any]:
        """The coroutine of one call: the method's own where it is one, so that the task is the method's task."""
        try:
            positional, named = self._arguments[index].make(vars(self.source.module))
            result = getattr(owner, self.methods[index])(*positional, **named)
        except Exception as error:  # becomes the result of this call, as it would inside a task
            return _raise(error)
        return result if inspect.iscoroutine(result) else finish(result)

    async def _make_object(self) -> Any:
        if self._setup is not None:
            return await await_anything(setup_function(self.source, self._setup)())
        return self._construct(self._constructor)

    def _construct(self, arguments: Arguments) -> Any:
        positional, named = arguments.make(vars(self.source.module))
        made = resolve(self.source.module, self.cls_name)(*positional, **named)
        recorder.created(made)  # else it is named by whichever call touches it first
        return made

    def _observe(self, owner: Any, results: Sequence[Any]) -> Observed:
        walker = Walker(_recorder_hook())
        walker.add(self.cls_name, owner)
        self._add_class_state(walker)
        raised = []
        for label, result in zip(self.labels, results, strict=True):
            if isinstance(result, MemoryError):
                raise result
            if isinstance(result, BaseException):
                where = innermost(result.__traceback__, self.source.is_subject)
                raised.append(Raised(label, type(result).__qualname__, error_text(result), where))
            walker.add(f"result of {label}", result)
        self.opaque |= walker.opaque
        return Observed(walker.flat, tuple(raised))

    def _add_class_state(self, walker: Walker) -> None:
        """Data that the class itself holds (shared by its objects) is state as well."""
        cls = resolve(self.source.module, self.cls_name)
        for owner in cls.__mro__:
            if not self.source.is_subject(getattr(sys.modules.get(owner.__module__), "__file__", None) or ""):
                continue
            for name, value in list(vars(owner).items()):
                if not name.startswith("__") and isinstance(value, (list, dict, set, int, float, str)):
                    walker.add(f"{owner.__qualname__}.{name}", value)

    # -- preparing

    def use_arguments_of(self, other: ConcurrentCalls) -> None:
        """Take over what was chosen for another variant of the same program, so that both are called alike."""
        self._arguments, self._constructor = other._arguments, other._constructor

    def argument_texts(self) -> tuple[str, ...]:
        """ "(1, 'x')" for each call."""
        return tuple(f"({a.text}{',' if len(a.positional) == 1 and not a.named else ''})" for a in self._arguments)

    def _groups(self, apart: int | None = None) -> list[int]:
        """Equal numbers for equal calls; the call `apart` is like no other."""
        keys = [(m, a.text) for m, a in zip(self.methods, self._arguments, strict=True)]
        return [-1 if index == apart else keys.index(key) for index, key in enumerate(keys)]

    def prepare(self, run: Runner) -> None:
        """Choose the arguments (once), then execute the sequential orders, each with two seeds; all on fresh modules.

        What differs between the runs of one order is left out of the comparison. The modules are fresh afterwards.
        """
        run = FreshRunner(self.source, run)
        if not self._arguments:
            self._choose_arguments(run)
            self._sharpen(run)
        self.serial = self._run_orders(run)
        if self._cancellation:
            self.without = {label: self._run_without(run, index) for index, label in enumerate(self.labels)}
        self.source.reload()
        self._take_notes(self.serial)

    def _sharpen(self, run: Runner) -> None:
        """Take the largest number of the fresh object as an argument where that makes calls end differently."""
        self._sharpened = ""
        if self._given or len(self.labels) < 2:
            return
        number, plain = self._try_endings(run)
        if number is None or plain is None or not ends_alike(self.methods, plain):
            return
        first = self._arguments
        for method in dict.fromkeys(self.methods):
            at = self.methods.index(method)
            for changed in with_number(first[at], number):
                self._arguments = tuple(changed if m == method else a for m, a in zip(self.methods, first, strict=True))
                _, endings = self._try_endings(run)
                if endings is not None and endings[at] == plain[at] and not ends_alike(self.methods, endings):
                    self._sharpened = (
                        f"{method}({changed.text}) rather than {method}({first[at].text}), "
                        "after which every call ends alike"
                    )
                    return
        self._arguments = first

    def _try_endings(self, run: Runner) -> tuple[int | float | None, list[str] | None]:
        """The largest number of the fresh object, and how each call ends one after another; None when that fails."""

        async def attempt() -> tuple[int | float | None, list[str]]:
            owner = await self._make_object()
            number = largest_number(owner)
            results = await self._one_after_another(owner, range(len(self.labels)))
            return number, [ending(result) for result in results]

        try:
            found: tuple[int | float | None, list[str]] = run(attempt(), _SEEDS[0])
        except (MemoryError, ChaosSlothError):
            raise
        except BaseException:  # as in `_run_order`: then nothing is known, and the first arguments stay
            return None, None
        return found

    def _run_orders(self, run: Runner) -> SerialOutcomes:
        orders, complete = sequential_orders(self._groups())
        _, all_names = relabellings(self._groups())
        serial = SerialOutcomes(complete and all_names, call_labels=self.labels)
        self._settles = True
        self._blocked = []
        self._sequential_runs = []
        failed: list[Raised] = []
        seeds = _SEEDS + _MORE_SEEDS
        for order in orders:
            runs: list[_SerialRun] = []
            for seed in seeds:
                if (result := self._run_order(run, order, seed)) is None:
                    break
                runs.append(result)
            if len(runs) < len(seeds):
                continue  # blocked: a sequential order that never ends has no outcome
            seeds = _SEEDS
            self._sequential_runs.append(runs)
            _add_runs(serial, runs)
            serial.orders += 1
            self._settles = self._settles and all(r[2] for r in runs)
            failed += runs[0][1]
        if not serial.orders:
            self._refuse_blocked()
        if len(failed) == len(self.labels) * serial.orders:
            self._refuse_failing(failed[0])
        return serial

    def _run_without(self, run: Runner, index: int) -> SerialOutcomes:
        """What is allowed where call `index` is cancelled: its effects as a whole, or none; its result says nothing."""
        label, others = self.labels[index], [i for i in range(len(self.labels)) if i != index]
        groups = self._groups(index)
        orders, complete = sequential_orders([groups[i] for i in others])
        assert self.serial is not None
        serial = SerialOutcomes(complete and self.serial.complete, call_labels=self.labels)
        for runs in self._sequential_runs:
            _add_runs(serial, [_without_result(each, label) for each in runs])
        for order in orders:
            made = [self._run_order(run, [others[i] for i in order], seed, index) for seed in _SEEDS]
            known = [_without_result(each, label) for each in made if each is not None]
            if len(known) == len(made):
                _add_runs(serial, known)
        serial.orders = len(orders) + self.serial.orders
        return serial

    def _run_order(self, run: Runner, order: Sequence[int], seed: int, missing: int | None = None) -> _SerialRun | None:
        try:
            result: _SerialRun = run(self._sequential(order, missing), seed)
        except (MemoryError, ChaosSlothError):
            raise
        except BaseException as error:  # the subject may raise anything, and a run alone may never end
            calls = ", ".join(f"{self.methods[i]}({self._arguments[i].text})" for i in order)
            if missing is None:
                self._blocked.append(f"({calls}): {shown_error(error)}")
            return None
        return result

    def _refuse_blocked(self) -> NoReturn:
        raise UsageError(
            f"{self.cls_name} cannot even be called one call after another {self._blocked[0]}; "
            f"add the method that lets it go on with --method, or {_REMEDY_SETUP}"
        )

    def _take_notes(self, serial: SerialOutcomes) -> None:
        self.notes = [f"calls: {self._argument_summary()}"]
        if self._sharpened:
            self.notes.append(f"arguments: {self._sharpened}")
        if serial.unstable_names():
            names = ", ".join(serial.unstable_names())
            self.notes.append(f"not compared, because it differs between equal sequential runs: {names}")
        if self._blocked:
            self.notes.append(f"a sequential order that does not end is no allowed outcome {self._blocked[0]}")
        if not serial.complete:
            self.notes.append(f"{serial.orders} sampled sequential orders of {len(self.labels)} calls, not all")
        if not self._settles:
            self.notes.append("background tasks outlive the calls; the state is read when the calls are done")

    def _argument_summary(self) -> str:
        calls = [f"{m}({a.text})" for m, a in zip(self.methods, self._arguments, strict=True)]
        made = f"--setup {self._setup}" if self._setup else f"{self.cls_name}({self._constructor.text})"
        sources = ", ".join(dict.fromkeys(a.source for a in self._arguments if a.text))
        only = "" if self._given else "; only these arguments were tried"
        chosen = f" (arguments from {sources}{only})" if sources else ""
        return f"{', '.join(dict.fromkeys(calls))} on {made}{chosen}"

    def _refuse_failing(self, failure: Raised) -> NoReturn:
        index = self.labels.index(failure.label)
        call = f"{self.cls_name}.{self.methods[index]}({self._arguments[index].text})"
        text = f"{failure.type}{': ' + failure.text.splitlines()[0] if failure.text else ''}"
        count = len(self._arguments[index].positional) + len(self._arguments[index].named)
        remedy = (_remedy_args(count) if count else "") + _REMEDY_SETUP
        raise UsageError(f"every call raises even when it runs alone: {call} raises {text}; {remedy}")

    def _choose_arguments(self, run: Runner) -> None:
        cls = resolve(self.source.module, self.cls_name)
        constructors = [Arguments()] if self._setup is not None else self._working_constructors(cls, run)
        failure: UsageError | None = None
        for constructor in constructors:
            self._constructor = constructor
            try:
                chosen = self._choose_for_methods(cls, run)
            except UsageError as error:
                failure = failure or error
                continue
            self._arguments = tuple(chosen[i] for i in range(len(self.labels)))
            return
        assert failure is not None
        raise failure

    def _working_constructors(self, cls: type, run: Runner) -> list[Arguments]:
        """Constructor arguments that raise nothing, best first. Raises UsageError when there are none."""
        working: list[Arguments] = []
        first_error: BaseException | None = None
        for arguments in constructor_candidates(cls, vars(self.source.module)):
            error = attempt_alone(run, self._construct_in_loop(arguments), _SEEDS[0])
            if error is None:
                working.append(arguments)
                if len(working) == _CONSTRUCTOR_TRIES:
                    break
            first_error = first_error or error
        if not working:
            assert first_error is not None
            names = _needed(cls, bound=False)
            needed = f" for {', '.join(names)}" if names else ""
            raise UsageError(
                f"{self.cls_name} cannot be constructed{' with any value tried' if names else ''}{needed}: "
                f"{shown_error(first_error)}; {_REMEDY_SETUP}"
            )
        return working

    async def _construct_in_loop(self, arguments: Arguments) -> None:
        self._construct(arguments)

    def _choose_for_methods(self, cls: type, run: Runner) -> dict[int, Arguments]:
        """Arguments per call. A method that needs what another one puts there is tried after the others."""
        if self._given:
            return {i: self._check_given(cls, i) for i in range(len(self.labels))}
        chosen: dict[str, Arguments] = {}
        errors: dict[str, BaseException] = {}
        pending = list(dict.fromkeys(self.methods))
        for attempt in range(2):
            for method in list(pending):
                before = [(m, a) for m, a in chosen.items()] if attempt else []
                found = self._first_accepted(cls, method, before, run)
                if isinstance(found, Arguments):
                    chosen[method] = found
                    pending.remove(method)
                else:
                    errors.setdefault(method, found)
        if pending:
            self._refuse_method(cls, pending[0], errors[pending[0]])
        return {i: chosen[m] for i, m in enumerate(self.methods)}

    def _first_accepted(
        self, cls: type, method: str, before: Sequence[tuple[str, Arguments]], run: Runner
    ) -> Arguments | BaseException:
        function = getattr(cls, method)
        bound = not isinstance(inspect.getattr_static(cls, method), (staticmethod, classmethod))
        first_error: BaseException | None = None
        tries = candidates(function, vars(self.source.module), bound=bound)
        for seed, arguments in itertools.product(_TRY_SEEDS, tries):
            error = attempt_alone(run, self._call_alone([*before, (method, arguments)]), seed)
            if error is None:
                return arguments
            first_error = first_error or error
        return first_error or TypeError("no arguments to try")

    async def _call_alone(self, calls: Sequence[tuple[str, Arguments]]) -> None:
        owner = await self._make_object()
        for method, arguments in calls:
            positional, named = arguments.make(vars(self.source.module))
            result = getattr(owner, method)(*positional, **named)
            await finish(result)

    def _check_given(self, cls: type, index: int) -> Arguments:
        """--args, given once for all calls or several times in turn, must fit the method's signature."""
        arguments = self._given[index % len(self._given)]
        method = self.methods[index]
        static = inspect.getattr_static(cls, method)
        owner = [] if isinstance(static, (staticmethod, classmethod)) else [None]
        try:
            signature = inspect.signature(getattr(cls, method))
        except (ValueError, TypeError):
            return arguments
        try:
            signature.bind(*owner, *arguments.positional, **dict(arguments.named))
        except TypeError as error:
            shown = f"{self.cls_name}.{method}{signature}"
            raise UsageError(
                f"--args ({arguments.text}) does not fit {shown}: {error}; give one value per parameter"
            ) from None
        return arguments

    def _refuse_method(self, cls: type, method: str, error: BaseException) -> NoReturn:
        names = _needed(getattr(cls, method), bound=True)
        name = f"{self.cls_name}.{method}"
        if not names:
            remedy = f"add the method that has to come first with --method, or {_REMEDY_SETUP}"
            raise UsageError(f"{name}() raises even when it runs alone: {shown_error(error)}; {remedy}")
        listed = ", ".join(names)
        raise UsageError(
            f"no value found for {listed} that {name} accepts: {shown_error(error)}; "
            f"{_remedy_args(len(names))}{_REMEDY_SETUP}"
        )


def _add_runs(serial: SerialOutcomes, runs: Sequence[_SerialRun]) -> None:
    """Runs of one order with different seeds."""
    for other in runs[1:]:
        serial.add(runs[0][0], other[0], (*runs[0][1], *other[1]))


def without_result(flat: Flat, label: str) -> Flat:
    """The outcome without the result of one call."""
    return {path: leaf for path, leaf in flat.items() if path[0] != f"result of {label}"}


def _without_result(run: _SerialRun, label: str) -> _SerialRun:
    flats, raised, settled = run
    return [without_result(flat, label) for flat in flats], tuple(r for r in raised if r.label != label), settled


def _remedy_args(count: int) -> str:
    return f"pass arguments with {args_example(count)}, or "


def _needed(function: Callable[..., Any], *, bound: bool) -> list[str]:
    return [p.name for p in required_parameters(function, bound=bound)]


async def _raise(error: BaseException) -> NoReturn:
    raise error


def _recorder_hook() -> Callable[[object, object], None] | None:
    """How the oracle's reads reach the recorder: like any other access, when a recording run is on."""
    if not recorder.enabled:
        return None
    add = recorder.add

    def read(owner: object, key: object) -> None:
        add(owner, key, "read")

    return read
