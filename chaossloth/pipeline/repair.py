"""Repair is search: candidates in rank order, each refuted as cheaply as possible; a survivor climbs the ladder.

Generation (operators x sites) is pure text work in this process; every judgement is an execution in the worker. A
candidate that takes the worker process down with it is refuted by that. What was tried, and by what each candidate
fell, is kept: for a reader, "no repair" with the list is an answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaossloth.config import Options
from chaossloth.diagnose.intents import NO_REPAIR
from chaossloth.diagnose.patterns import diagnose
from chaossloth.errors import SubjectUnusable, UsageError
from chaossloth.evidence import (
    CandidateCounts,
    Finding,
    Forced,
    Label,
    LadderRung,
    Repair,
    RepairIntent,
    Trace,
    Verdict,
)
from chaossloth.pipeline import verdicts
from chaossloth.repair.candidates import Candidate, generate_with_reasons
from chaossloth.repair.render import unified_diff
from chaossloth.report.progress import Observer
from chaossloth.subject.isolate import Worker

__all__ = ["RepairLoop"]

_TIMES = 20
_MAX_TRIED = 120


@dataclass(slots=True)
class _Tally:
    generated: int = 0
    replay: int = 0
    sequential: int = 0
    exploration: int = 0
    repeated: int = 0
    ladder: int = 0
    tried: list[str] = field(default_factory=list)
    judged: int = 0

    def counts(self) -> CandidateCounts:
        return CandidateCounts(
            generated=self.generated,
            refuted_by_replay=self.replay,
            refuted_by_exploration=self.exploration,
            refuted_by_sequential=self.sequential,
            refuted_by_duplicate_work=self.repeated,
            refuted_on_ladder=self.ladder,
            untried=self.generated - self.judged,
        )


class RepairLoop:
    """One finding's repair. left(share): seconds left of the budget; restore(): a new worker that knows the failure."""

    def __init__(
        self,
        worker: Worker,
        observer: Observer,
        options: Options,
        labels: Sequence[Label],
        calls: int | None,
        executions: Mapping[Label, int],
        root: Path,
    ) -> None:
        self._worker = worker
        self._observer = observer
        self._options = options
        self._labels = list(labels)
        self._calls = calls
        self._executions = dict(executions)
        self._root = root
        self.patched: dict[str, str] = {}  # {path: text} of the accepted candidate

    def run(
        self,
        finding: Finding,
        failing: Trace,
        sources: Mapping[str, str],
        left: Callable[[float], float],
        restore: Callable[[], None],
    ) -> tuple[Repair | None, str | None]:
        """(repair, None) with a verified one; (NO_REPAIR, reason); (None, None) when the time ended before a trial."""
        self._restore = restore
        diagnosis = diagnose(finding.critical_pair, failing, sources, finding.deadlock)
        generation = generate_with_reasons(diagnosis)
        candidates = generation.candidates
        tally = _Tally(generated=len(candidates) + generation.left_out)
        if not candidates:
            why = "; ".join(generation.refused[:2])
            pattern = finding.pattern.replace("-", " ")
            reason = f"no operator applies to this pattern ({pattern}) at these lines" + (f": {why}" if why else "")
            if finding.pattern == "test-expectation":
                reason = "the test asserts an order that nothing promises: the expectation has to change, not the code"
            return self._no_repair(finding, reason, tally), reason
        before = self._call("remember")
        for candidate in candidates[:_MAX_TRIED]:
            if left(1.0) <= 0.25:
                break
            repair = self._judge(candidate, finding, sources, tally, left, before)
            if repair is not None:
                return dataclasses.replace(repair, candidates=tally.counts(), tried=tuple(tally.tried)), None
        if not tally.judged:
            return None, None
        return self._no_repair(finding, self._reason(tally), tally), self._reason(tally)

    @staticmethod
    def _no_repair(finding: Finding, reason: str, tally: _Tally) -> Repair:
        """The answer when nothing survives, with what was tried."""
        lines = sorted(access.line for access in finding.critical_pair) or [0]
        target = finding.critical_pair[0].function if finding.critical_pair else ""
        intent = RepairIntent(NO_REPAIR, target, (lines[0], lines[-1]), reason)
        return Repair(intent, "", tally.counts(), (), verified=False, tried=tuple(tally.tried))

    def _reason(self, tally: _Tally) -> str:
        words = f"{tally.judged} of {tally.generated} candidates tried: {tally.replay} refuted by replay"
        words += f", {tally.sequential} changed what the calls do one after another"
        words += f", {tally.repeated} repeated the work of others"
        words += f", {tally.exploration} refuted by exploration, {tally.ladder} fell on a later rung"
        return words + "".join(f"; {line}" for line in tally.tried[:3])

    def _call(self, op: str, on_progress: Callable[[Any], None] | None = None, **args: Any) -> dict[str, Any]:
        return self._worker.call(op, args, on_progress)

    def _judge(
        self,
        candidate: Candidate,
        finding: Finding,
        sources: Mapping[str, str],
        tally: _Tally,
        left: Callable[[float], float],
        before: Mapping[str, Any],
    ) -> Repair | None:
        tally.judged += 1
        intent = candidate.intent
        name = f"{intent.kind} at {intent.target} {intent.lines[0]}–{intent.lines[1]}"
        self._observer.progress(f"candidate {tally.judged}/{tally.generated}: {name}", tally.judged, tally.generated)
        overrides = {candidate.path: candidate.new_source}
        try:
            answer = self._call(
                "candidate",
                overrides=overrides,
                patched=candidate.intent.target.split(", "),
                labels=self._labels,
                executions=self._executions,
                seconds=left(0.35),
                seed=self._options.seed,
                times=_TIMES,
            )
            if answer["refuted_by"] is None:
                repair = self._climb(candidate, finding, sources, answer, overrides, before)
                if repair.verified:
                    return repair
                failed = next(rung for rung in repair.ladder if rung.passed is False)
                answer = {"refuted_by": "a later rung", "detail": f"{failed.rung}: {failed.detail}"}
        except (SubjectUnusable, UsageError) as error:
            answer = {"refuted_by": "replay", "detail": str(error)}
            if isinstance(error, SubjectUnusable):
                self._restore()
                self._call("remember")
        self._count(tally, answer, name)
        return None

    def _count(self, tally: _Tally, answer: Mapping[str, Any], name: str) -> None:
        by = answer["refuted_by"]
        tally.replay += by == "replay"
        tally.sequential += by == "sequential"
        tally.repeated += by == "duplicate work"
        tally.ladder += by == "a later rung"
        tally.exploration += by == "exploration"
        token = f" ({answer['token']})" if answer.get("token") else ""
        tally.tried.append(f"{name}: refuted by {by}{token}: {str(answer['detail']):.120}")

    # ------------------------------------------------------------------ the ladder of a survivor

    def _climb(
        self,
        candidate: Candidate,
        finding: Finding,
        sources: Mapping[str, str],
        answer: Mapping[str, Any],
        overrides: Mapping[str, str],
        before: Mapping[str, Any],
    ) -> Repair:
        verdict = verdicts.of_search(answer["searches"], self._calls)
        rungs = [self._forced_rung(finding, answer), self._explored_rung(verdict), self._deadlock_rung(answer)]
        rungs.append(
            LadderRung(
                "sequential behaviour", True, f"same in {answer['sequential_runs']} runs, one call after another"
            )
        )
        rungs.append(
            LadderRung(
                "duplicate work", True, "in the old order nothing else works more often than one call after another"
            )
        )
        rungs += self._natural(overrides)
        forced_after: dict[str, Forced | None] = {
            "controlled": Forced(answer["forced_runs"], 0, "old order followed, and old choices replayed"),
            "stock": self._stock_after(finding, overrides),
        }
        stock = forced_after["stock"]
        if stock is not None:
            rungs.insert(
                1, LadderRung("forced on the stock loop", stock.failures == 0, f"{stock.failures}/{stock.runs} fail")
            )
        rungs.append(LadderRung("governor", None, "the rules are not part of this version"))
        rungs.append(LadderRung("the file's own tests", None, "not run in this version"))
        rungs.append(self._cost_rung(before, answer))
        verified = all(rung.passed is not False for rung in rungs)
        diff = unified_diff(self._shown(candidate.path), sources[candidate.path], candidate.new_source)
        self.patched = dict(overrides) if verified else {}
        return Repair(candidate.intent, diff, CandidateCounts(), tuple(rungs), verified, forced_after, verdict)

    def _shown(self, path: str) -> str:
        """Relative to the project's root, so that `git apply` and `patch -p1` find the file."""
        real = Path(path)
        return str(real.relative_to(self._root)) if real.is_relative_to(self._root) else path

    def _forced_rung(self, finding: Finding, answer: Mapping[str, Any]) -> LadderRung:
        before = finding.forced.get("controlled")
        was = f"{before.failures}/{before.runs} failed before" if before is not None else "not forced before"
        return LadderRung(
            "forced replay", True, f"{was}, 0/{_TIMES} fail after (order followed), 0/{_TIMES} (choices replayed)"
        )

    def _explored_rung(self, verdict: Verdict) -> LadderRung:
        per_label = ", ".join(f"{label} {count}" for label, count in verdict.executions_by_label.items())
        return LadderRung(
            "exploration", True, f"{verdict.word}: 0 of {verdict.executions} executions fail ({per_label})"
        )

    def _deadlock_rung(self, answer: Mapping[str, Any]) -> LadderRung:
        cycles = [cycle for search in answer["searches"] for cycle in search["lock_cycles"]]
        word = "lock order acyclic over all of them" if not cycles else f"{len(cycles)} cycle(s) in the lock order"
        return LadderRung("no deadlock", not cycles, f"none in these executions · {word}")

    def _natural(self, overrides: Mapping[str, str]) -> list[LadderRung]:
        runs = max(self._options.runs, 1)
        answer = self._call("sample_candidate", overrides=overrides, runs=runs, step_limit_s=self._options.step_limit_s)
        failures, made, complaint = answer["natural"]["failures"], answer["natural"]["runs"], answer["two_loops"]
        return [
            LadderRung("natural", failures == 0, f"{failures}/{made} natural runs fail"),
            LadderRung(
                "two event loops", complaint is None, complaint or "no primitive is kept on a module or a class"
            ),
        ]

    def _stock_after(self, finding: Finding, overrides: Mapping[str, str]) -> Forced | None:
        if finding.forced.get("stock") is None:
            return None
        from pydantic import TypeAdapter

        answer = self._call("force_candidate", overrides=overrides, times=_TIMES)
        return TypeAdapter(Forced).validate_python(answer)

    def _cost_rung(self, before: Mapping[str, Any], answer: Mapping[str, Any]) -> LadderRung:
        old, new = before["makespan_s"] * 1e3, answer["makespan_s"] * 1e3
        detail = f"virtual makespan in stock order {old:.2f} ms before, {new:.2f} ms after (mean of 10 seeds)"
        if new >= 1.5 * old > 0:
            detail += f" · {new / old:.1f} times as long: the calls wait for each other now"
        return LadderRung("cost", True, detail)
