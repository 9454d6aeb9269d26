"""The nine phases in order; the only module that knows them all.

Each phase takes the evidence so far and adds to it. The subject runs in a worker process; when that process is lost (a
step that never ends, `os._exit`, memory), or the user interrupts, what was learnt stays and is reported as such. No
phase upgrades a verdict: "proven" needs every label's search to have run empty, and nothing unobservable, drawn or real
in it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from chaossloth.config import Options, command_line, shell_line
from chaossloth.demo import DEMO_CLASS, DEMO_METHOD, demo_path
from chaossloth.errors import ReplayDiverged, SubjectUnusable, UsageError
from chaossloth.evidence import (
    Cancellation,
    CriticalAccess,
    DeadlockReport,
    Finding,
    Forced,
    Investigation,
    Label,
    Natural,
    Outcome,
    Repair,
    StarvationEntry,
    Trace,
)
from chaossloth.pipeline import distinct, verdicts
from chaossloth.pipeline.context import Context, decode
from chaossloth.pipeline.repair import RepairLoop
from chaossloth.report.progress import Observer
from chaossloth.subject.locate import locate, parse_target

__all__ = ["investigate"]

FORCED_RUNS = 20
SPINNING_RUNS = 2
MOST_FINDINGS = 20
_SEARCH_SHARE = 0.5  # of the budget, for all labels together
_EXECUTIONS: Mapping[Label, int] = {"stock": 300, "latency": 300, "reorder": 1500}
_SWEEP_FACTOR = 4  # executions of the sweep to those of a search: it has many placements
_T = TypeVar("_T")


def investigate(options: Options, observer: Observer) -> Investigation:
    """Run the phases that `options` asks for. Raises UsageError and ToolError; everything else is in the result.

    A first KeyboardInterrupt ends the work and the result says so.
    """
    if options.target is None:
        options = dataclasses.replace(options, target=_shortest(demo_path()), cls=DEMO_CLASS, methods=(DEMO_METHOD,))
    path_text, selector = parse_target(options.target or "")
    _refuse_to_overwrite(options.json_path, path_text)
    located = locate(path_text, selector, options.cls, options.methods)
    return _Investigator(options, observer, located).run()


def _refuse_to_overwrite(json_path: str | None, target: str) -> None:
    """The document must not be written over the subject, under whatever name the two are given."""
    if json_path in (None, "-") or not (os.path.exists(str(json_path)) and os.path.exists(target)):
        return
    if os.path.samefile(str(json_path), target):
        raise UsageError(f"--json {json_path} is the file that is investigated; name another file")


def _shortest(path: Path) -> str:
    """Relative to the working directory where it lies below it: the reproduce line is to be copied."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _message(outcome: Outcome) -> str:
    """One text; an exception's name in front, unless the text begins with it."""
    if outcome.failure != "exception" or outcome.exception is None or outcome.message.startswith(outcome.exception):
        return outcome.message or (outcome.exception or "")
    return f"{outcome.exception}: {outcome.message}"


class _Investigator(Context):
    def run(self) -> Investigation:
        try:
            self._phases()
        except KeyboardInterrupt:
            known = f"interrupted: what is reported was known by then{self._under_way()}"
            self._add(interrupted=True, notes=(*self.result.notes, known))
            self._settle("interrupted")
        except SubjectUnusable as lost:
            self._lost(lost)
        except ReplayDiverged as diverged:
            raise UsageError(f"--replay {diverged}") from None
        finally:
            self.worker.close()
        self._add(timings_s=dict(self.timings))
        output = self.worker.output
        if output.stdout_bytes + output.stderr_bytes:
            self._note(f"the subject printed {output.stdout_bytes + output.stderr_bytes} bytes, not shown")
        self._reproduce()
        return self.result

    def _phases(self) -> None:
        self.worker.start()
        self._describe()
        if self.options.replay is not None:
            self._replayed()
            return
        self._sample()
        self._boundary()
        self._force()
        self._liveness()
        self._starvation()
        self._cause()
        self._repair()
        self._verify()
        self._settle(None)

    # ------------------------------------------------------------------ phases

    def _sample(self) -> None:
        runs = self.options.runs
        with self._phase(1):
            if runs == 0:
                return
            answer = self._call(
                "sample",
                lambda p: self.observer.progress(f"natural run {p['done']}/{runs}", p["done"], runs),
                runs=runs,
                step_limit_s=self.options.step_limit_s,
                seconds=self.options.budget_s,
            )
            self.deadline = perf_counter() + self.options.budget_s  # the budget is for search and repair
            self._add(
                natural=decode(Natural, answer["natural"]),
                starvation=decode(tuple[StarvationEntry, ...], answer["starvation"]),
                longest_step_ms=answer["longest_step_ms"],
            )
            aborted = answer["natural"]["aborted"]
            if aborted is not None and "memory" in aborted:
                raise SubjectUnusable("memory", f"{aborted}; the limit is {self.options.memory_mb} MB (--memory)")
            self.audited = answer
            self._add(telemetry=verdicts.timings(answer["telemetry"]))

    def _boundary(self) -> None:
        with self._phase(2):
            pass

    def _force(self) -> None:
        with self._phase(3):
            share = _SEARCH_SHARE / 2 if self.options.cancel else _SEARCH_SHARE
            for position, label in enumerate(self.labels):
                seconds = self._left(share / (len(self.labels) - position))
                figures = self._search(label, self._executions(label), seconds)
                if "outcome" in figures and not self.options.all_failures:
                    self._reproduced(figures, self._minimised())
                    break
            if self.options.all_failures:
                self._distinct(self.figures)
            if self.options.cancel:
                self._sweep()
            self._judge_search()

    def _distinct(self, searched: Mapping[Label, Mapping[str, Any]]) -> None:
        """The first kind of failure that is a race becomes the finding; of the others, those with another cause.

        Kinds in which several things are wrong come last: they may be several races at once.
        """
        kinds = [
            (number, made)
            for number, made, _ in sorted(
                (kind for figures in searched.values() for kind in figures["kinds"]),
                key=lambda kind: len(distinct.parts(kind[2])),
            )
        ]
        counted = dict(self.figures)
        for position, (number, made) in enumerate(kinds):
            if self.result.outcome == "not-a-race":  # an earlier kind: it stays as a note
                self._note(f"another failure is no race: {self.result.cause} ({self.not_a_race_token})")
                self._add(outcome="inconclusive", cause="")
                self.figures, self.not_a_race_token = dict(counted), None
            self._call("choose", number=number)
            self._reproduced({"executions_to_find": made}, self._minimised())
            if self.found is None:
                continue
            try:
                more = max(figures["more_kinds"] for figures in searched.values())
                self._others(kinds[position + 1 :], more)
                self._call("choose", number=number)
            except SubjectUnusable as lost:  # the first finding is explained and repaired all the same
                self._note(f"further failures were seen and not explained: {lost.detail}")
                self._restore()
            return

    def _others(self, kinds: Sequence[tuple[int, int]], more: int) -> None:
        """Each in half of the time that is left; what the time, or the number of kinds kept, leaves out is counted."""
        finding = self.found
        assert finding is not None and self.diagnosed is not None
        races = [self._explained(finding, self.diagnosed)[0]]
        known = {distinct.cause_of(races[0])}
        ends, undone = perf_counter() + self._left(0.5), 0
        for number, made in kinds:
            if perf_counter() > ends or len(self.result.findings) >= MOST_FINDINGS:
                undone += 1
                continue
            other = self._other(number, made, ends - perf_counter())
            if other is not None and distinct.is_several(other, races):
                self._note(distinct.several_words(other))
            elif other is not None and distinct.cause_of(other) not in known:
                known.add(distinct.cause_of(other))
                races.append(other)
                self._add(findings=(*self.result.findings, self._on_stock(other)))
        for words in distinct.left_out(undone, more):
            self._note(words)

    def _other(self, number: int, made: int, seconds: float) -> Finding | None:
        """One further kind of failure, minimised and explained; None where it does not come again or is no race."""
        self._call("choose", number=number)
        self.observer.progress("minimising the schedule of another failure", None, None)
        reduced = self._call("reduce", seconds=min(2.0, seconds), times=FORCED_RUNS)
        if reduced["failures"] == 0:
            self._gone(reduced)
            return None
        finding = self._new_finding(reduced, made)
        answer = self._call("diagnose", seconds=max(1.0, min(3.0, seconds)), times=FORCED_RUNS)
        if self._is_no_race(finding, answer):
            self._note(f"another failure is no race: {finding.message} ({finding.token})")
            return None
        reason = distinct.NO_CANCELLATION if finding.needs_cancellation else distinct.NOT_REPAIRED
        explained = self._explained(finding, answer)[0]
        return dataclasses.replace(explained, no_repair_reason=reason if self.options.repair else None)

    @staticmethod
    def _is_no_race(finding: Finding, answer: Mapping[str, Any]) -> bool:
        """Concurrent calls whose outcome no sequential order has are a race by definition: a sequential one passes."""
        order_matters = finding.deadlock is not None or finding.failure == "not-serializable"
        return answer["kind"] in ("always-fails", "random") and not order_matters

    def _sweep(self) -> None:
        """Cancellations, where nothing fails without one."""
        if any("outcome" in figures for figures in self.figures.values()):
            self._note("no cancellation was tried: that is for programs in which nothing fails without one")
            return
        for position, label in enumerate(self.labels):
            seconds = self._left(_SEARCH_SHARE / (len(self.labels) - position))
            figures = self._swept(label, seconds)
            if "outcome" in figures and not self.options.all_failures:
                self._reproduced(figures, self._minimised())
                return
        if self.options.all_failures:
            self._distinct(self.swept)

    def _swept(self, label: Label, seconds: float) -> dict[str, Any]:
        executions = self.options.executions or _EXECUTIONS[label] * _SWEEP_FACTOR

        def progress(p: Mapping[str, Any]) -> None:
            self.observer.progress(f"{label}, cancelling: {p['executions']} executions", p["executions"], executions)

        figures = self._call(
            "sweep",
            progress,
            label=label,
            victims=self.options.victims,
            double=self.options.double_cancel,
            executions=executions,
            seconds=seconds,
            **self._how_to_search(),
        )
        self.swept[label] = figures
        if not figures.get("cancellation", {"tasks": [""]})["tasks"]:
            named = f"no task matches --victims {self.options.victims}" if self.options.victims else "no task to cancel"
            self._note(f"{named}: nothing was cancelled")
        return figures

    def _executions(self, label: Label) -> int:
        return self.options.executions or _EXECUTIONS[label]

    def _search(self, label: Label, executions: int, seconds: float) -> dict[str, Any]:
        def progress(p: Mapping[str, Any]) -> None:
            self.searching = p
            said = f"{p['label']}: {p['executions']} executions, {p['distinct']} inequivalent"
            if p.get("per_second"):
                said += f", {p['per_second']:.0f}/s"
            if p.get("share") is not None:
                said += f", about {100 * p['share']:.0f} % covered"
            self.observer.progress(said, p["executions"], executions)

        figures = self._call(
            "search", progress, label=label, executions=executions, seconds=seconds, **self._how_to_search()
        )
        self.figures[label] = figures
        for note in figures["notes"]:
            self._note(note)
        self.searching = None
        return figures

    def _how_to_search(self) -> dict[str, Any]:
        return {"seed": self.options.seed, "all_failures": self.options.all_failures}

    def _under_way(self) -> str:
        """What the search that was cut off had done: its figures never arrived."""
        p = self.searching
        if p is None:
            return ""
        ended = f"{p['executions']} ended ({p['distinct']} inequivalent, {p['failures']} failed)"
        return f"; the search under {p['label']} was cut off: of its executions {ended}, which are not counted"

    def _judge_search(self) -> None:
        figures = [*self.figures.values(), *self.swept.values()]
        if self.unrepeatable:
            figures[-1] = {**figures[-1], "repeatable": False}
        finished = all(label in self.figures for label in self.labels)
        verdict = verdicts.of_search(figures, self._calls(), self.result.natural, finished)
        if self.options.replay is None:  # a replay searches nothing that could be limited
            bounds = dataclasses.replace(verdict.bounds, executions=self.options.executions)
            verdict = dataclasses.replace(verdict, bounds=bounds)
        self._add(verdict=verdict)

    def _calls(self) -> int | None:
        return self.result.target.calls if self.result.target.cls is not None else None

    def _minimised(self) -> dict[str, Any]:
        self.observer.progress("minimising the schedule", None, None)
        return self._call("reduce", seconds=min(5.0, self._left(0.3)), times=FORCED_RUNS)

    def _reproduced(self, figures: Mapping[str, Any], reduced: Mapping[str, Any]) -> None:
        if reduced["failures"] == 0:
            self._gone(reduced)
            return
        self._add(findings=(self._new_finding(reduced, figures["executions_to_find"]),))
        self.observer.progress("turning races round", None, None)
        self.diagnosed = self._call("diagnose", seconds=max(2.0, self._left(0.3)), times=FORCED_RUNS)
        finding = self.found
        assert finding is not None
        if self.diagnosed["kind"] == "cancellation":
            self._finding(cancellations=decode(tuple[Cancellation, ...], self.diagnosed["cancellations"]))
            self._confirm_on_stock()
            return
        if self._is_no_race(finding, self.diagnosed):
            self._not_a_race(self.diagnosed)
            return
        if self.diagnosed["kind"] == "undecided":
            self._note("the time ended before it was known whether some order passes; a larger --budget may tell")
        self._confirm_on_stock()

    def _gone(self, reduced: Mapping[str, Any]) -> None:
        """A failure that its own schedule does not show again is no finding."""
        self.unrepeatable = True
        message = _message(decode(Outcome, reduced["outcome"]))
        self._note(
            f"a failure was seen once ({message}) and not again in {reduced['runs']} replays of its schedule: state"
            " that survives an execution, or something that is not under control"
        )

    def _new_finding(self, reduced: Mapping[str, Any], executions: int) -> Finding:
        outcome = decode(Outcome, reduced["outcome"])
        forced = Forced(reduced["runs"], reduced["failures"], "virtual time")
        if reduced["same"] < reduced["runs"]:
            self.unrepeatable = True
            self._note(
                f"the schedule took the same path in {reduced['same']} of {reduced['runs']} replays:"
                " something uncontrolled takes part"
            )
        return Finding(
            failure=outcome.failure or "exception",
            label=reduced["label"],
            message=_message(outcome),
            token=reduced["token"],
            deviations=reduced["deviations"],
            bypass=reduced["bypass"],
            executions_to_find=executions,
            lateness_us=reduced["lateness_us"],
            forced={"controlled": forced, "stock": None},
            deadlock=decode(DeadlockReport, reduced["deadlock"]) if reduced["deadlock"] else None,
            where=outcome.where,
            needs_cancellation=reduced["needs_cancellation"],
        )

    def _confirm_on_stock(self) -> None:
        finding = self.found
        assert finding is not None
        self._add(findings=(self._on_stock(finding), *self.result.findings[1:]))

    def _on_stock(self, finding: Finding) -> Finding:
        """With its order forced on the stock loop too, where that loop can show it."""
        if finding.label == "reorder":
            return finding
        self.observer.progress("forcing the order on the stock loop", None, None)
        spins = finding.failure == "livelock"  # each such run lasts as long as the limit
        stock = decode(Forced, self._call("force", times=SPINNING_RUNS if spins else FORCED_RUNS))
        return dataclasses.replace(finding, forced={**finding.forced, "stock": stock if stock.runs else None})

    def _liveness(self) -> None:
        with self._phase(4):
            audit = verdicts.liveness([*self.figures.values(), *self.swept.values()], self.audited)
            explained = [finding.deadlock for finding in self.result.findings if finding.deadlock is not None]
            deadlocks = tuple(explained) or audit.deadlocks
            self._add(liveness=dataclasses.replace(audit, deadlocks=deadlocks))

    def _starvation(self) -> None:
        import ast

        from chaossloth.starvation import blocking_calls

        with self._phase(5):
            tree = ast.parse(self.source, str(self.path))
            self._add(starvation=(*self.result.starvation, *blocking_calls(tree, str(self.path))))

    def _cause(self) -> None:
        with self._phase(6):
            finding = self.found
            if finding is not None and self.diagnosed is not None:
                self._explain(finding, self.diagnosed)

    def _explain(self, finding: Finding, answer: Mapping[str, Any]) -> None:
        explained, self.failing, self.sources = self._explained(finding, answer)
        self._add(findings=(explained, *self.result.findings[1:]))

    def _explained(self, finding: Finding, answer: Mapping[str, Any]) -> tuple[Finding, Trace, dict[str, str]]:
        """With pair and pattern; the failing trace and the texts of the files that it passes through."""
        from chaossloth.diagnose.cancelled import classify_cancelled
        from chaossloth.diagnose.patterns import classify, collected_words

        failing = decode(Trace, answer["failing"])
        passing = decode(Trace, answer["passing"]) if answer["passing"] else None
        sources = self._sources(failing)
        if answer["kind"] == "cancellation":
            landed = decode(tuple[Cancellation, ...], answer["cancellations"])
            finding = dataclasses.replace(finding, cancellations=landed)
            pattern, explanation, pair = classify_cancelled(failing, passing, landed, answer["seen"], finding.deadlock)
        elif answer["kind"] == "collected":
            pattern, explanation, pair = "leak", collected_words(finding.message, answer["verified"]), ()
        else:
            pair = decode(tuple[CriticalAccess, ...], answer["pair"])
            pattern, explanation = classify(pair, failing, sources, finding.deadlock)
        explained = dataclasses.replace(
            finding,
            pattern=pattern,
            explanation=explanation,
            critical_pair=pair,
            pair_verified=answer["verified"],
            trace={"failing": failing.steps, "passing": passing.steps if passing else ()},
        )
        return explained, failing, sources

    def _sources(self, trace: Trace) -> dict[str, str]:
        """Texts of the subject's files that the trace passes through, as analysed."""
        from chaossloth.repair.apply import decode_source

        files = {frame.file for step in trace.steps for access in step.accesses for frame in access.stack}
        texts = {str(self.path): decode_source(self.source)}
        for file in sorted(files - set(texts)):
            if os.path.isfile(file):
                self.analysed.setdefault(file, Path(file).read_bytes())
                texts[file] = decode_source(self.analysed[file])
        return texts

    def _not_a_race(self, answer: Mapping[str, Any]) -> None:
        finding = self.found
        assert finding is not None
        tried = self._count_orders(answer["executions"])
        if answer["kind"] == "random":
            cause = (
                f"the draws decide, not the order: every order tried with them fails, others pass ({tried} executions)"
            )
        else:
            cause = f"it fails in every order tried ({tried} executions), so no interleaving is to blame"
        where = decode(Trace, answer["failing"]).outcome.where
        place = f" at {self.path.name}:{where.line}" if where else ""
        self._add(findings=(), outcome="not-a-race", cause=f"{finding.message}{place}: {cause}")
        self.not_a_race_token = finding.token

    def _repair(self) -> None:
        with self._phase(7):
            finding = self.found
            if finding is None or not self.options.repair:
                return
            if finding.needs_cancellation:
                self._finding(no_repair_reason=distinct.NO_CANCELLATION)
                return
            loop = RepairLoop(
                self.worker,
                self.observer,
                self.options,
                self.labels,
                self._calls(),
                _EXECUTIONS,
                self.located.context.root,
            )
            assert self.failing is not None
            repair, reason = loop.run(finding, self.failing, self.sources, self._left, self._restore)
            self.patched = loop.patched
            foreign = [path for path in loop.patched if path != str(self.path) and not self.is_own(path)]
            if repair is not None and foreign:
                repair = dataclasses.replace(repair, installed=True)
            self._finding(repair=repair, no_repair_reason=reason)

    def _restore(self) -> None:
        """After a candidate took the worker process with it: a new one that knows the failure again."""
        finding = self.found
        assert finding is not None
        self.worker.restart()
        self._open()
        self._call("describe")
        self._call("replay", token=finding.token, times=1)

    def _verify(self) -> None:
        with self._phase(8):
            finding = self.found
            if finding is None or finding.repair is None or not finding.repair.verified:
                return
            if self.options.apply:
                try:
                    self._apply(finding.repair)
                except UsageError as refused:
                    self._note(str(refused))

    def _apply(self, repair: Repair) -> None:
        from chaossloth.repair.apply import apply_patch, encode_source

        if repair.installed:
            return
        for path, text in self.patched.items():
            analysed = self.analysed[path]
            apply_patch(Path(path), analysed, encode_source(text, analysed))
        self._finding(repair=dataclasses.replace(repair, applied=True))

    # ------------------------------------------------------------------ replay

    def _replayed(self) -> None:
        """Only what the token stands for: force and cause; no sample, no search, no repair."""
        token = self.options.replay
        assert token is not None
        self.options = dataclasses.replace(self.options, repair=False)
        with self._phase(3):
            answer = self._call("replay", token=token, times=FORCED_RUNS)
            self.figures[answer["label"]] = answer["figures"]
            if not answer["passed"]:
                self._reproduced({"executions_to_find": 1}, answer)
            self._judge_search()
        if answer["passed"]:
            self._add(outcome="clean", cause=f"the interleaving {token} passes ({answer['steps']} steps)")
            return
        self._cause()
        self._settle(None)

    # ------------------------------------------------------------------ ends

    def _settle(self, interrupted: str | None) -> None:
        """The outcome that the evidence supports."""
        finding = self.found
        if self.result.outcome == "not-a-race":
            return
        figures = [*self.figures.values(), *self.swept.values()]
        outcome, cause = verdicts.outcome_of(finding, self.result, figures, self.options.repair, bool(interrupted))
        self._add(outcome=outcome, cause=cause)
        if interrupted and self.figures:
            self._judge_search()

    def _count_orders(self, reversals: int) -> int:
        """Add the executions of the diagnosis to the search's, and return all of them."""
        label: Label = "reorder"
        known = self.figures.get(label) or {**next(iter(self.figures.values())), "label": label, "executions": 0}
        made = {"executions": known["executions"] + reversals, "exhausted": False}
        self.figures[label] = {**known, **made, "failures": known["executions"] + reversals}
        return sum(int(f["executions"]) for f in self.figures.values())

    def _lost(self, lost: SubjectUnusable) -> None:
        self._note(lost.detail)
        if self.result.natural is None and self.phase == 1:
            self._add(natural=Natural(0, 0, (0.0, 1.0), None, aborted=lost.detail))
        if self.figures:
            self._judge_search()
        if lost.reason == "step-never-ended" and lost.stack:
            entry = verdicts.starving(lost, self.is_own)
            self._add(starvation=(*self.result.starvation, entry))
        self._settle("lost")
        if self.found is None:
            self._add(outcome="inconclusive", cause=lost.detail)

    def _reproduce(self) -> None:
        finding = self.found
        token = finding.token if finding is not None else self.not_a_race_token
        self._add(reproduce=shell_line(command_line(self.options, token)))
