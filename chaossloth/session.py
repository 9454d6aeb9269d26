"""Everything that executes the subject, on the worker's side: one `Session` per worker process.

The command asks by operation; answers are plain JSON. The session keeps what later operations build on (the failing
execution, the original's sequential runs), so that no execution crosses the channel: only figures, tokens and two
traces do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from chaossloth.causality import critical_accesses
from chaossloth.diagnose.landing import diagnose_cancelled
from chaossloth.diagnose.pair import diagnose
from chaossloth.errors import ReplayDiverged, ToolError, UsageError
from chaossloth.evidence import Forced, Label, as_json
from chaossloth.explore.cancellation import Sweep, fields, words
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.lateness import least_lateness
from chaossloth.explore.minimise import minimise
from chaossloth.explore.schedule import parse_token
from chaossloth.explore.search import Limits, Search, SearchResult, kind_of, pct_floor
from chaossloth.explore.strategy import Deviate
from chaossloth.liveness import lock_order_cycles
from chaossloth.loop import uvloops
from chaossloth.loop.cancelling import TIMEOUTS, Victims
from chaossloth.loop.run import DEFAULT_BYPASS_BOUND, DEFAULT_STALL_S
from chaossloth.subject.channel import progress

if TYPE_CHECKING:
    from chaossloth.force import StockPlan

__all__ = ["Session", "stock_plan"]

_REPORT_EVERY_S = 0.1
_TRIAGE: Mapping[Label, int] = {"stock": 4, "latency": 6, "reorder": 12}


class _Fresh:
    """A program whose modules are executed anew before each run, as a new process would."""

    def __init__(self, program: Any, refresh: Callable[[], Any]) -> None:
        self.kind = program.kind
        self.judge = program.judge
        self.judge_cancelled = program.judge_cancelled
        self._program = program
        self._refresh = refresh

    def make(self) -> Coroutine[Any, Any, Any]:
        self._refresh()
        made: Coroutine[Any, Any, Any] = self._program.make()
        return made

    def call(self) -> Any:
        self._refresh()
        return self._program.call()


class Session:
    """State between operations. `subject` loads programs: `subject.program(instrumented, overrides)`."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject
        self._overrides: dict[str, str] = {}
        self._executor: Executor | None = None
        self._searches: dict[str, Search] = {}
        self._sweep: Sweep | None = None
        self._swept: tuple[str | None, bool] | None = None  # victims, double: of the sweep that was asked for
        self._failure: Execution | None = None
        self._kinds: dict[tuple[Any, ...], int] = {}  # of failure -> its place in `_failures`
        self._failures: list[Execution] = []
        self._chosen: int | None = None
        self._last_report = 0.0

    # ------------------------------------------------------------------ programs

    def _controlled(self) -> Executor:
        """The executor of the program at hand (original or variant), loaded with instrumentation."""
        if self._executor is None:
            program = self._subject.program(instrumented=True, overrides=self._overrides)
            self._executor = Executor(program, self._subject.refresh, self._subject.is_subject)
        return self._executor

    def _plain(self) -> Any:
        self._executor = None
        return self._subject.program(instrumented=False, overrides=self._overrides)

    def _fresh_plain(self) -> _Fresh:
        return _Fresh(self._plain(), self._subject.refresh)

    def describe(self) -> dict[str, Any]:
        """Loads the subject once, uninstrumented: what was chosen, with which arguments, notes."""
        self._plain()
        return dict(self._subject.describe())

    def triage(self, seconds: float, seed: int) -> dict[str, Any]:
        """Discovery left several choices: take the first that a short search makes fail, else the first that runs.

        Returns how many were tried of how many, whether one failed, and the description of the one taken.
        """
        subject, deadline = self._subject, perf_counter() + seconds
        total, tried, usable, failing = subject.choices(), 0, None, False
        refused: list[str] = []
        subject.program(instrumented=True, overrides={})
        for index in range(total):
            if usable is not None and perf_counter() > deadline:
                break
            try:
                executor = Executor(subject.select(index), subject.refresh, subject.is_subject)
            except UsageError as error:
                refused.append(str(error))
                continue
            tried += 1
            usable = index if usable is None else usable
            if self._fails_soon(executor, seed, deadline):
                usable, failing = index, True
                break
            self._tell({"tried": tried, "total": total})
        if usable is None:
            raise UsageError(refused[0])
        subject.select(usable)
        return {"tried": tried, "total": total, "failing": failing}

    @staticmethod
    def _fails_soon(executor: Executor, seed: int, deadline: float) -> bool:
        for label, executions in _TRIAGE.items():
            result = Search(executor, label, seed).run(Limits(executions, deadline))
            if result.failure is not None:
                return True
        return False

    # ------------------------------------------------------------------ phases

    def sample(self, runs: int, step_limit_s: float, seconds: float = math.inf) -> dict[str, Any]:
        from chaossloth.natural import sample

        program = self._fresh_plain()
        result = sample(
            program,
            runs,
            is_subject=self._subject.is_subject,
            step_limit_s=step_limit_s,
            on_run=lambda done, failures: self._tell({"done": done, "failures": failures}),
            seconds=seconds,
        )
        cycles = lock_order_cycles(result.lock_order)
        return {**as_json(result), "lock_cycles": as_json(cycles)}

    def search(
        self, label: Label, executions: int, seconds: float, seed: int, all_failures: bool = False
    ) -> dict[str, Any]:
        """Search one label until its first failure, or to its end. Asked again for the same label, it goes on.

        all_failures: "kinds" lists [number for `choose`, executions to find, message] of each kind of failure that no
        earlier label had, "more_kinds" counts those of which none was kept.
        """
        executor = self._controlled()
        search = self._searches.setdefault(label, Search(executor, label, seed))
        limits = Limits(executions, perf_counter() + seconds)
        figures: dict[str, Any] = {}
        if all_failures:
            result = search.run(limits, stop=lambda _: False, on_progress=self._tell_search)
            figures = self._new_kinds(result)
        else:
            result = search.run(limits, on_progress=self._tell_search)
        if result.failure is not None:
            self._failure = result.failure
        return self._figures(result) | figures | {"repeatable": self._repeatable(executor, result)}

    def _new_kinds(self, result: SearchResult) -> dict[str, Any]:
        new = []
        for kind, (execution, executions) in result.kinds.items():
            if kind not in self._kinds:
                self._kinds[kind] = len(self._failures)
                new.append([len(self._failures), executions, execution.outcome.message])
                self._failures.append(execution)
        return {"kinds": new, "more_kinds": len(result.more_kinds - set(self._kinds))}

    def choose(self, number: int) -> dict[str, Any]:
        """Make the failure of that number the one that `reduce`, `diagnose`, `force` and the trials are about."""
        self._failure, self._chosen = self._failures[number], number
        return {}

    def sweep(
        self,
        label: Label,
        victims: str | None,
        double: bool,
        executions: int,
        seconds: float,
        seed: int,
        all_failures: bool = False,
    ) -> dict[str, Any]:
        """Cancel at each suspension of each victim under one label; asked again for the same label, it goes on.

        victims: pattern, None for the calls under test or the main task's own tasks. "bound" says what was covered.
        all_failures: as for `search`.
        """
        executor = self._controlled()
        self._swept = (victims, double)
        if self._sweep is None:
            self._sweep = Sweep(executor, self._victims(victims), seed, double, all_failures)
        sweep, limits = self._sweep, Limits(executions, perf_counter() + seconds)
        result = sweep.run(label, limits, self._tell_search)
        chosen = f"victims {victims}" if victims is not None else self._usual_victims()
        added = {"bound": words(sweep.result, chosen), "cancellation": fields(sweep.result)}
        if all_failures:
            added |= self._new_kinds(result)
        if result.failure is not None:
            self._failure = result.failure
        return self._figures(result) | added | {"repeatable": self._repeatable(executor, result)}

    def _victims(self, pattern: str | None) -> Victims:
        calls = getattr(self._controlled().program, "calls", None)
        return Victims(pattern, frozenset(calls.labels) if calls is not None and pattern is None else frozenset())

    def _usual_victims(self) -> str:
        calls = getattr(self._controlled().program, "calls", None)
        return "the calls under test" if calls is not None else "the tasks that the main task starts"

    @staticmethod
    def _repeatable(executor: Executor, result: SearchResult) -> bool:
        """Determinism check: the schedules at hand, executed again, take the path that they took."""
        known = [*result.passed[:2], *([result.failure] if result.failure is not None else [])]
        return all(executor.replay(each.schedule).schedule.check == each.schedule.check for each in known)

    def _figures(self, result: SearchResult) -> dict[str, Any]:
        executor = self._controlled()
        floor = pct_floor(result)
        edges = sorted(result.lock_order, key=repr)
        figures: dict[str, Any] = {
            "label": result.label,
            "executions": result.executions,
            "failures": result.failures,
            "truncated": result.truncated,
            "capped": result.capped,
            "left": result.left,
            "executions_to_find": result.executions_to_find,
            "exhausted": result.exhausted,
            "distinct": len(result.signatures),
            "draws": result.draws,
            "touched": sorted(result.touched),
            "seeds": len(result.seeds),
            "steps": result.max_steps,
            "tasks": result.max_procs,
            "choices": result.max_choices,
            "pct": f"PCT depth 2, {result.pct_runs // 3} runs: floor {floor:.2%}" if result.pct_runs >= 3 else None,
            "locks": result.locks,
            "strategies": result.strategies,
            "lock_cycles": as_json(lock_order_cycles(edges)),
            "unobservable": sorted(executor.unobservable | self._unseen()),
            "real_io": sorted(executor.real_io),
            "leaks": sorted(executor.leaks),
            "notes": [uvloops.NOTE] if uvloops.imported() else [],
            "bypass_bound": DEFAULT_BYPASS_BOUND,
            "stall_s": DEFAULT_STALL_S,
            "redundant": result.redundant,
            "unfair": result.unfair,
            "impossible": result.impossible,
            "coverage": result.coverage,
            "per_second": result.rate,
        }
        if result.failure is not None:
            figures["outcome"] = as_json(result.failure.outcome)
            figures["deadlock"] = as_json(result.failure.run.deadlock)
        return figures

    def _unseen(self) -> set[str]:
        """What took part and was not seen: code that is not recorded, state that the oracle cannot compare."""
        packages = {f"code of {name} (installed; --include {name})" for name in self._subject.foreign_packages()}
        packages |= {f"code that could not be instrumented: {entry}" for entry in self._subject.skipped()}
        return packages | {f"content of {place}" for place in self._subject.unobserved()}

    def reduce(self, seconds: float, times: int) -> dict[str, Any]:
        """Minimise the failure that was found, then reproduce it `times` times."""
        executor, failure = self._controlled(), self._known_failure()
        with executor.like(failure.schedule.cancels, failure.schedule.collect):
            until = perf_counter() + seconds
            if self._chosen is None:
                best, spent = minimise(executor, failure, until)
            else:  # one of several kinds: it must not become another
                best, spent = minimise(executor, failure, until, kind=kind_of)
        self._failure = best
        if self._chosen is not None:
            self._failures[self._chosen] = best
        return self._finding(executor, best, times) | {"executions": spent}

    def _finding(self, executor: Executor, best: Execution, times: int) -> dict[str, Any]:
        failures, same = 0, 0
        touched: set[str] = set()
        shown = executor.replay(best.schedule, detail=True)
        if not best.schedule.deviations:
            late: float | None = 0.0  # stock order: every timer comes when it is due
        else:
            late = shown.run.lateness if best.schedule.label == "reorder" else least_lateness(shown.run)
        for _ in range(times):
            again = executor.replay(best.schedule)
            failures += again.failed and again.outcome.failure == best.outcome.failure
            same += again.schedule.check == best.schedule.check
            touched |= again.touched
        return {
            "token": best.schedule.token,
            "label": best.schedule.label,
            "deviations": len(best.schedule.deviations),
            "bypass": best.run.bypass,
            "lateness_us": None if late is None else late * 1e6,
            "outcome": as_json(best.outcome),
            "deadlock": as_json(best.run.deadlock),
            "runs": times,
            "failures": failures,
            "same": same,
            "touched": sorted(touched),
            "extended": len(best.run.extended),
            "needs_cancellation": bool(best.run.cancels is not None and best.run.cancels.landed),
        }

    def replay(self, token: str, times: int) -> dict[str, Any]:
        """Replay a token. Raises ReplayDiverged when the program takes another path than the token's."""
        schedule = parse_token(token)
        executor = self._controlled()
        if schedule.cancels:  # what ends by itself without a cancellation has to be known first
            executor.victims = self._victims(None)
            executor.execute(Deviate({}), executor.model("stock"), schedule.seed)
        execution = executor.replay(schedule, strict=True)
        ended = execution.run.ended
        if ended is not None and ended.kind == "diverged":
            raise ReplayDiverged(f"{token}: {ended.detail}; {self._why_diverged(execution)}")
        if execution.schedule.check != schedule.check:
            raise ReplayDiverged(
                f"{token}: the run of {execution.run.count} steps took another path than the recorded one;"
                f" {self._why_diverged(execution)}"
            )
        result = SearchResult(schedule.label)
        result.add(execution)
        figures = self._figures(result) | {"executions": 1 + (times if execution.failed else 0)}
        if not execution.failed:
            return {"passed": True, "steps": execution.run.count, "label": schedule.label, "figures": figures}
        self._failure = execution
        finding = self._finding(executor, execution, times)
        figures["failures"] = 1 + finding["failures"]
        return finding | {"passed": False, "figures": figures}

    def _why_diverged(self, execution: Execution) -> str:
        sources = sorted(execution.touched | execution.run.real_io)
        used = f" (in use: {', '.join(sources)})" if sources else ""
        return (
            "the source, the arguments or the Python version changed since the token was made,"
            f" or something that is not under control took part{used}"
        )

    def diagnose(self, seconds: float, times: int) -> dict[str, Any]:
        executor, failure = self._controlled(), self._known_failure()
        if failure.schedule.cancels:
            return self._diagnose_cancelled(executor, failure, times)
        found = diagnose(executor, failure, perf_counter() + seconds, times)
        return {
            "kind": found.kind,
            "failing": as_json(found.failing),
            "passing": as_json(found.passing),
            "pair": as_json(critical_accesses(found.race, found.failing.steps)) if found.race else [],
            "sync": found.race.first.sync if found.race else False,
            "verified": found.verified,
            "executions": found.executions,
        }

    @staticmethod
    def _diagnose_cancelled(executor: Executor, failure: Execution, times: int) -> dict[str, Any]:
        found = diagnose_cancelled(executor, failure, times)
        return {
            "kind": "cancellation" if found.passing is not None else "always-fails",
            "failing": as_json(found.failing),
            "passing": as_json(found.passing),
            "cancellations": as_json(found.cancellations),
            "seen": {"handed": found.handed, "innocents": list(found.innocents), "died": as_json(found.died)},
            "verified": found.verified,
            "executions": found.executions,
        }

    def force(self, times: int) -> dict[str, Any]:
        """The failing order on the stock loop, with delays at awaits (labels stock and latency).

        No runs where `stock_plan` has none.
        """
        from chaossloth.force import force

        plan = stock_plan(self._known_failure())
        if plan is None:
            return as_json(Forced(0, 0))  # type: ignore[no-any-return]
        program = self._fresh_plain()
        return as_json(force(program, plan, times=times, is_subject=self._subject.is_subject))  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ helpers

    def _known_failure(self) -> Execution:
        if self._failure is None:
            raise ToolError("no failure was found in this session")
        return self._failure

    def _tell(self, message: dict[str, Any]) -> None:
        now = monotonic()
        if now - self._last_report >= _REPORT_EVERY_S:
            self._last_report = now
            progress(message)

    def _tell_search(self, result: SearchResult) -> None:
        self._tell(
            {
                "label": result.label,
                "executions": result.executions,
                "failures": result.failures,
                "distinct": len(result.signatures),
                "share": result.coverage,
                "per_second": result.rate,
            }
        )

    def operations(self) -> dict[str, Callable[..., Any]]:
        """What the command may ask for, by name."""
        asked: list[Callable[..., Any]] = [
            self.describe,
            self.triage,
            self.sample,
            self.search,
            self.choose,
            self.reduce,
        ]
        asked += [self.sweep, self.replay, self.diagnose, self.force]
        return {operation.__name__: operation for operation in asked}


def stock_plan(failure: Execution) -> StockPlan | None:
    """The failing schedule as the stock loop needs it; None where that loop cannot show the failure.

    That is so for a timeout that fires early, for what is seen only after the main task has ended by the cancellation,
    and for what only a look at the end of the run tells (a permit that is kept, an innocent that was cancelled).
    """
    from chaossloth.force import StockPlan

    run, injector = failure.run, failure.run.cancels
    if injector is not None and (
        injector.after_main
        or (injector.stray and failure.outcome.exception == "CancelledError")
        or (injector.landed and failure.outcome.failure == "leak")
        or any(cancel.kind in TIMEOUTS for cancel in injector.plan)
    ):
        return None
    return StockPlan(
        seed=failure.schedule.seed if failure.draws else None,
        timers=tuple(tuple(group) for group in run.groups),
        yields=frozenset(run.extended),
        stalls=tuple((key, ordinal, seconds * 1e6) for key, ordinal, seconds in run.stalls),
        cancels=tuple((cancel.victim, cancel.step, cancel.kind) for cancel in failure.schedule.cancels),
        collect=run.collect,
    )
