"""The program that is executed again and again: a function, a test, or concurrent calls on one object.

A `Program` holds names, never objects of the subject: the module may be loaded anew (another variant, fresh state)
between two executions, and each execution looks its functions and classes up in the module of the moment.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from chaossloth.errors import ToolError, UsageError
from chaossloth.evidence import Failure, Outcome
from chaossloth.subject.calls import CallSpec, ConcurrentCalls, Observed, without_result
from chaossloth.subject.locate import Choice
from chaossloth.subject.oracle import SerialOutcomes
from chaossloth.subject.running import (
    ModuleSource,
    Runner,
    await_anything,
    error_text,
    file_name,
    innermost,
    refuse_parameters,
    resolve,
)

__all__ = ["CallSpec", "ModuleSource", "Observed", "Program", "Runner", "build_program", "judge_error"]

Kind = Literal["async", "sync", "calls"]


@dataclass
class Program:
    """One thing to execute. See `build_program`.

    kind:      "async": `make` gives a coroutine; "sync": `call` runs its own event loop; "calls": `make`, and the
               serializability oracle judges what it returns.
    name:      for people.
    arguments: what was chosen for each call (repr), after `prepare`.
    notes:     sentences for the report: choices, exclusions, limits.
    serial:    allowed outcomes of "calls", after `prepare`.
    """

    kind: Kind
    name: str
    source: ModuleSource
    starter: Callable[[], Any]
    calls: ConcurrentCalls | None = None
    arguments: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def make(self) -> Coroutine[Any, Any, Any]:
        """A new coroutine of the main task ("async", "calls")."""
        if self.kind == "calls":
            assert self.calls is not None
            return self.calls.concurrent()
        result = self.starter()
        if inspect.iscoroutine(result):
            return result
        return await_anything(result)

    def call(self) -> Any:
        """Run a "sync" program, which starts its own event loop."""
        return self.starter()

    def prepare(self, run: Runner) -> None:
        """Choose arguments and compute the allowed outcomes ("calls"). The subject's modules are fresh afterwards.

        Raises UsageError when no arguments are found that a sequential call accepts.
        """
        if self.calls is None:
            self.source.reload()  # another choice may have been executed on them before
        else:
            self.calls.prepare(run)
            self.arguments = self.calls.argument_texts()
            self.notes = list(self.calls.notes)

    @property
    def serial(self) -> SerialOutcomes | None:
        return self.calls.serial if self.calls is not None else None

    def judge(self, result: Any, error: BaseException | None) -> Outcome:
        """How an execution ended: its main task gave `result` or raised `error`."""
        if error is not None:
            return judge_error(error, self.source.is_subject)
        if isinstance(result, Observed):
            if self.serial is None:
                raise ToolError("outcomes of concurrent calls are judged after prepare()")
            return self.serial.judge(result.flat, result.raised)
        return _FINE

    def judge_cancelled(self, result: Any, cancelled: frozenset[str]) -> Outcome:
        """How an execution of "calls" ended in which the calls labelled `cancelled` were cancelled.

        One that ended by that may have taken effect or not; one that ended otherwise is a call like the others.
        """
        if not isinstance(result, Observed) or self.calls is None:
            return self.judge(result, None)
        gone = [r.label for r in result.raised if r.label in cancelled and r.type in ("CancelledError", "TimeoutError")]
        allowed = self.calls.without.get(gone[0]) if len(gone) == 1 else None
        if allowed is None:
            return self.judge(result, None)
        rest = tuple(r for r in result.raised if r.label not in gone)
        outcome = allowed.judge(without_result(result.flat, gone[0]), rest)
        if outcome.ok:
            return outcome
        return replace(outcome, message=f"with call {gone[0]} cancelled, {outcome.message}")


_FINE = Outcome(ok=True)  # immutable, one for all


# --- judging exceptions ----------------------------------------------------------------------------------------


def judge_error(error: BaseException, is_subject: Callable[[str], bool]) -> Outcome:
    """Outcome for an exception that ended the program; `where` is the subject's innermost line."""
    leaf = _main_leaf(error)
    name = type(leaf).__qualname__
    if name in ("Skipped", "SkipTest"):
        return Outcome(ok=True, message=f"skipped: {leaf}")
    failed = isinstance(leaf, AssertionError) or (name == "Failed" and type(leaf).__module__ == "_pytest.outcomes")
    kind: Failure = "assertion" if failed else "exception"
    return Outcome(False, kind, name, error_text(leaf), innermost(leaf.__traceback__, is_subject))


def _main_leaf(error: BaseException) -> BaseException:
    """The exception that says most in a group: an assertion if there is one, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_main_leaf(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, AssertionError)), leaves[0])


# --- building --------------------------------------------------------------------------------------------------


def build_program(
    choice: Choice, source: ModuleSource, spec: CallSpec | None = None, like: Program | None = None
) -> Program:
    """The program for one choice of `locate`, checked against the loaded module. Raises UsageError.

    like: an earlier program of the same choice (another variant); its chosen arguments are used again.
    """
    spec = spec or CallSpec()
    if choice.kind == "calls":
        program = _build_calls(choice, source, spec)
        if program.calls is not None and like is not None and like.calls is not None:
            program.calls.use_arguments_of(like.calls)
        return program
    if spec.setup is not None:
        raise UsageError(
            f"--setup {spec.setup} makes the object for concurrent calls, but {choice.name} is run as it is; "
            "name what to call with --cls and --method, or leave --setup out"
        )
    if choice.kind == "test-method":
        return _build_test_method(choice, source)
    function = resolve(source.module, choice.name)
    if isinstance(function, type):
        raise UsageError(f"{choice.name} is a class; run its methods with --cls {choice.name} --method NAME")
    if not callable(function):
        raise UsageError(f"{choice.name} in {file_name(source)} is a {type(function).__name__}, not a function")
    refuse_parameters(choice.name, function)
    if inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{choice.name} in {file_name(source)} is an asynchronous generator: calling it runs nothing; name a"
            " coroutine function that iterates over it"
        )
    kind = _kind_of(function, choice.is_async)
    return Program(kind, choice.name, source, lambda: resolve(source.module, choice.name)())


def _kind_of(function: Callable[..., Any], written_async: bool) -> Kind:
    """Async or sync as called. A decorator may turn an `async def` into a function that runs its own loop."""
    if inspect.iscoroutinefunction(function):
        return "async"
    code = getattr(function, "__code__", None)
    runs_loop = code is not None and bool({"run", "run_until_complete"} & set(code.co_names))
    return "async" if written_async and not runs_loop else "sync"


def _build_test_method(choice: Choice, source: ModuleSource) -> Program:
    assert choice.cls is not None
    cls_name, method = choice.cls, choice.methods[0]
    cls = resolve(source.module, cls_name)
    function = resolve(source.module, choice.name)
    unit = "unittest" in sys.modules and isinstance(cls, type) and issubclass(cls, sys.modules["unittest"].TestCase)
    if not unit:
        refuse_parameters(choice.name, function.__get__(object()))
    kind = _kind_of(function, choice.is_async)

    def start() -> Any:
        now = resolve(source.module, cls_name)
        if unit:
            case = now(method)
            return _run_case(case, method) if kind == "async" else case.debug()
        return _run_plain_test(now(), method) if kind == "async" else _call_plain_test(now(), method)

    return Program(kind, choice.name, source, start)


async def _run_case(case: Any, method: str) -> None:
    """An asynchronous test of unittest in the present loop: what IsolatedAsyncioTestCase does, without its runner."""
    try:
        case.setUp()
        await await_anything(getattr(case, "asyncSetUp", _nothing)())
        try:
            await await_anything(getattr(case, method)())
        finally:
            await await_anything(getattr(case, "asyncTearDown", _nothing)())
            case.tearDown()
    finally:
        while case._cleanups:
            function, args, kwargs = case._cleanups.pop()
            await await_anything(function(*args, **kwargs))


def _nothing() -> None:
    return None


async def _run_plain_test(test: Any, method: str) -> None:
    function = getattr(test, method)
    await await_anything(_optional(test, "setup_method", function))
    try:
        await await_anything(function())
    finally:
        await await_anything(_optional(test, "teardown_method", function))


def _call_plain_test(test: Any, method: str) -> None:
    function = getattr(test, method)
    _optional(test, "setup_method", function)
    try:
        function()
    finally:
        _optional(test, "teardown_method", function)


def _optional(test: Any, name: str, method: Callable[..., Any]) -> Any:
    """pytest's setup_method and teardown_method, which may take the test method."""
    function = getattr(test, name, None)
    if function is None:
        return None
    return function(method) if inspect.signature(function).parameters else function()


def _build_calls(choice: Choice, source: ModuleSource, spec: CallSpec) -> Program:
    assert choice.cls is not None
    if spec.calls < 1:
        raise UsageError(f"--calls {spec.calls}: at least 1 call is needed, 2 to find a race")
    cls = resolve(source.module, choice.cls)
    if not isinstance(cls, type):
        raise UsageError(f"{choice.cls} in {file_name(source)} is a {type(cls).__name__}, not a class")
    if spec.setup is None and inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise UsageError(
            f"{choice.cls} is abstract (it lacks {missing}); name a subclass, "
            "or give an object with --setup module:function"
        )
    for method in choice.methods:
        _check_method(cls, choice.cls, method, choice.checked)
    calls = ConcurrentCalls(source, choice.cls, choice.methods, spec)
    return Program("calls", choice.name, source, calls.concurrent, calls)


def _check_method(cls: type, cls_name: str, method: str, written_async: bool) -> None:
    function = getattr(cls, method, None)
    if function is None:
        usable = [n for n in dir(cls) if inspect.iscoroutinefunction(getattr(cls, n, None)) and not n.startswith("__")]
        listed = f"; its async methods: {', '.join(usable[:8])}" if usable else "; it has no async method"
        raise UsageError(f"class {cls_name} has no method {method!r}{listed}")
    if not callable(function):
        raise UsageError(f"{cls_name}.{method} is a {type(function).__name__}, not a method")
    plain = inspect.isfunction(function) and not hasattr(function, "__wrapped__") and not written_async
    if plain and not inspect.iscoroutinefunction(function) and not inspect.isasyncgenfunction(function):
        raise UsageError(f"{cls_name}.{method} is not async, so calls of it cannot interleave; name an async method")
