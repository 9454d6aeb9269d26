"""Each phase's evidence in words and figures, from the `Investigation` alone.

The same function renders a phase while the investigation goes on and afterwards, so that the two can never disagree.
Three rules: a figure is printed with what it is a figure of; what was not attempted is said, with the reason where it
is known; no sentence claims more than the evidence holds ("no lock added" is read off the diff, not off the intent).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chaossloth.evidence import Finding, Forced, Investigation, Repair, Target
from chaossloth.plural import count
from chaossloth.report.trace import Sources, interleavings, stale_writes
from chaossloth.report.waiting import deadlock_words, edge_words, liveness_lines, starvation_lines
from chaossloth.report.words import bounds_words, duration, place, shortened, shown_path, skipped, verdict_words

__all__ = ["attempted", "bodies", "describe_target", "failure_words", "finding_words", "header", "is_replay"]


def header(inv: Investigation) -> list[str]:
    """Program, version, subject; then how the subject was chosen and with which arguments it is called."""
    lines = [f"chaossloth {inv.version} · {shown_path(inv.target.path)} · {describe_target(inv.target)}"]
    if inv.target.how_chosen:
        lines.append(inv.target.how_chosen)
    arguments = inv.target.arguments
    if arguments:
        same = len(set(arguments)) == 1
        each = "called without arguments" if arguments[0] == "()" else f"called with {arguments[0]} each"
        lines.append(each if same else f"called with {', '.join(arguments)}")
    return lines


def describe_target(target: Target) -> str:
    if target.cls is None:
        return target.test or "nothing chosen"
    methods = " + ".join(f"{target.cls}.{method}" for method in target.methods)
    return f"{methods or target.cls} × {target.calls}"


def bodies(inv: Investigation, sources: Sources, width: int, verbosity: int) -> dict[int, list[str]]:
    """Phase number to its lines, without number and name; lines with two leading spaces are rows of a table."""
    return {
        0: header(inv),
        1: _sample(inv, verbosity),
        2: _boundary(inv),
        3: _per_finding(
            inv, lambda f: _force(inv, f, sources), _not_forced(inv), lambda f: _forced_briefly(inv, f, sources)
        ),
        4: liveness_lines(inv),
        5: starvation_lines(inv, verbosity),
        6: _per_finding(inv, lambda f: _cause(f, sources, width, verbosity), _no_cause(inv), _cause_briefly),
        7: _per_finding(inv, lambda f: _repair(inv, f, verbosity), [skipped(inv, "nothing to repair")]),
        8: _verify(inv.findings[0], verbosity) if inv.findings else [skipped(inv, "no patch to verify")],
    }


def is_replay(inv: Investigation) -> bool:
    """Whether one recorded interleaving was asked for, and so no search, no natural runs and no repair."""
    return any(word == "--replay" or word.startswith("--replay=") for word in inv.command)


def attempted(inv: Investigation) -> frozenset[int]:
    """Phases that the report has to show: all nine, but of a replay those that have evidence."""
    if not is_replay(inv):
        return frozenset(range(10))
    repairs = [finding.repair for finding in inv.findings if finding.repair is not None]
    evidence = {
        1: inv.natural is not None,
        2: inv.boundary is not None or bool(inv.telemetry),
        4: inv.liveness is not None,
        5: bool(inv.starvation) or inv.longest_step_ms is not None,
        6: bool(inv.findings) or inv.outcome == "not-a-race",
        7: bool(repairs),
        8: any(repair.diff for repair in repairs),
    }
    return frozenset({0, 3, 9} | {number for number, there in evidence.items() if there})


def _per_finding(
    inv: Investigation,
    render: Callable[[Finding], list[str]],
    otherwise: list[str],
    brief: Callable[[Finding], list[str]] | None = None,
) -> list[str]:
    """The first finding whole, the others as `brief` has them."""
    if not inv.findings:
        return otherwise
    if len(inv.findings) == 1:
        return render(inv.findings[0])
    lines: list[str] = []
    for number, finding in enumerate(inv.findings, 1):
        first, *rest = render(finding) if number == 1 or brief is None else brief(finding)
        lines += [f"finding {number} of {len(inv.findings)}: {first}", *rest]
    return lines


# 1


def _sample(inv: Investigation, verbosity: int) -> list[str]:
    natural = inv.natural
    if natural is None:
        return [skipped(inv, "no natural runs")]
    if natural.runs == 0:
        return [f"no natural run finished: {natural.aborted}" if natural.aborted else "no natural runs (--runs 0)"]
    low, high = natural.ci95
    interval = f"95 % CI {100 * low:.0f}–{100 * high:.0f}"
    rate = f"{100 * natural.failures / natural.runs:.0f} %, " if natural.failures else ""
    fail = "fails" if natural.runs == 1 else "fail"
    runs = f"{natural.failures}/{natural.runs} natural runs {fail} ({rate}{interval})"
    line = f"{runs} · stock loop · overhead {_overhead(natural.overhead)}"
    lines = [line if natural.aborted is None else f"{line} · stopped early: {natural.aborted}"]
    messages = list(dict.fromkeys(natural.messages))
    shown = messages if verbosity > 0 else messages[:1]
    return lines + [shortened(message) for message in shown]


def _overhead(share: float | None) -> str:
    """A difference below nothing is noise, and no figure of it means anything."""
    if share is None:
        return "not measurable"
    return "none measurable" if share <= 0 else f"{100 * share:.1f} %"


# 2


def _boundary(inv: Investigation) -> list[str]:
    boundary = inv.boundary
    if boundary is None:
        return [_timings(inv)] if inv.telemetry else [skipped(inv, "no await was timed")]
    if boundary.p50_us is None and boundary.measured_us is None:
        return [f"no threshold at {boundary.site} · {boundary.estimator}"]
    threshold = boundary.p50_us if boundary.p50_us is not None else boundary.measured_us
    parts = [f"fails once {boundary.site} takes {duration(threshold)} longer than its peer"]
    if boundary.posterior is not None:
        parts.append(f"P(threshold | D) {boundary.posterior:.2f}")
    if boundary.ci90_us is not None:
        parts.append(f"90 % CI {duration(boundary.ci90_us[0])} – {duration(boundary.ci90_us[1])}")
    parts.append("not measured" if boundary.measured_us is None else f"measured {duration(boundary.measured_us)}")
    parts.append(boundary.estimator)
    return [" · ".join(parts), *([boundary.second_opinion] if boundary.second_opinion else [])]


def _timings(inv: Investigation) -> str:
    """What the telemetry alone shows, and that nothing was inferred from it."""
    timed = f"{count(len(inv.telemetry), 'await site')} timed"
    both = [
        (t.median_failing_us - t.median_passing_us, t.site)
        for t in inv.telemetry
        if t.median_failing_us is not None and t.median_passing_us is not None
    ]
    if not both:
        return f"{timed} · no delay threshold inferred: the natural runs all end alike"
    difference, site = max(both, key=lambda pair: abs(pair[0]))
    sign = "+" if difference >= 0 else "−"
    where = shown_path(site.rpartition(":")[0]) + ":" + site.rpartition(":")[2]
    words = f"median suspension at {where} in failing runs {sign}{duration(abs(difference))} against passing ones"
    return f"{timed} · {words} · no delay threshold inferred in this version"


# 3


def _force(inv: Investigation, finding: Finding, sources: Sources) -> list[str]:
    return [_found(inv, finding), _reproduced(finding), failure_words(finding, sources)]


def _forced_briefly(inv: Investigation, finding: Finding, sources: Sources) -> list[str]:
    return [f"{_found(inv, finding)} · --replay {finding.token}", _reproduced(finding), failure_words(finding, sources)]


def _found(inv: Investigation, finding: Finding) -> str:
    label = f"label {finding.label}"
    if finding.lateness_us:
        label += f", +{duration(finding.lateness_us)}"
    if finding.bypass:
        label += f", bypass {finding.bypass}"
    parts = [
        f"{finding.token} replayed" if is_replay(inv) else f"found in {count(finding.executions_to_find, 'execution')}",
        f"{count(finding.deviations, 'deviation')} from stock order",
        label,
    ]
    return " · ".join([*parts, _needed(finding)] if finding.needs_cancellation else parts)


def _needed(finding: Finding) -> str:
    if finding.cancellations and all(each.kind == "timeout" for each in finding.cancellations):
        return "needs a timeout"
    return (
        "needs a cancellation"
        if len(finding.cancellations) < 2
        else f"needs {len(finding.cancellations)} cancellations"
    )


def _reproduced(finding: Finding) -> str:
    controlled, stock = finding.forced.get("controlled"), finding.forced.get("stock")
    parts = [_forced("controlled loop", controlled)]
    if stock is None and finding.label == "reorder":
        parts.append("stock loop not attempted: FIFO forbids this order")
    elif stock is None and finding.needs_cancellation:
        parts.append("stock loop not attempted: it would have to go on after the main task, or to fire a timeout early")
    else:
        parts.append(_forced("stock loop", stock))
    return " · ".join(parts)


def _forced(loop: str, forced: Forced | None) -> str:
    if forced is None:
        return f"{loop} not attempted"
    how = f", {forced.how}," if forced.how else ""
    return f"{loop}{how} {forced.failures}/{forced.runs} fail"


def finding_words(finding: Finding, sources: Sources) -> str:
    """Cause, where one was established, and failure, for the outcome's line."""
    if finding.deadlock is not None:
        return _title(finding)
    failure = failure_words(finding, sources)
    known = finding.critical_pair or finding.cancellations
    return f"{_title(finding)} · {failure}" if known else failure


def failure_words(finding: Finding, sources: Sources) -> str:
    """The kind of failure and its message, cut to one short line; place and source line where there is no message."""
    kind = finding.failure.replace("-", " ")
    message = finding.message.strip()
    where = finding.where
    if where is not None and finding.failure == "leak":
        return f"{kind}: {shortened(message)} at {place(where)}"
    if where is None or not _is_bare(finding):
        return f"{kind}: {shortened(message)}" if message else kind
    name = "" if finding.failure == "assertion" or not message else f" {message.removesuffix(':')}"
    line = sources.line(where.file, where.line)
    return f"{kind}{name} at {place(where)}" + (f": {shortened(line)}" if line else "")


def _is_bare(finding: Finding) -> bool:
    """Whether the message says nothing but the exception's name: `assert x`, `raise KeyError`."""
    message = finding.message.strip()
    if finding.failure == "assertion":
        return message in ("", "AssertionError")
    return finding.failure == "exception" and re.fullmatch(r"([\w.<>]+:?)?", message) is not None


def _not_forced(inv: Investigation) -> list[str]:
    if is_replay(inv):
        return [_replayed_without_finding(inv)]
    if inv.verdict.executions == 0:
        return [skipped(inv, "no execution on the controlled loop")]
    executed = count(inv.verdict.executions, "execution")
    if inv.outcome == "not-a-race":
        return [f"no interleaving changes the outcome in {executed}"]
    labels = ", ".join(f"{label} {number}" for label, number in inv.verdict.executions_by_label.items() if number)
    return [f"no failing interleaving in {executed}" + (f" ({labels})" if labels else "")]


def _replayed_without_finding(inv: Investigation) -> str:
    if inv.interrupted:
        return skipped(inv, "the replay did not end")
    if inv.outcome == "not-a-race":
        return "the replayed interleaving fails, but not because of its order"
    if inv.outcome in ("inconclusive", "error") and inv.cause:
        return f"the replay did not end: {inv.cause}"
    return "the replayed interleaving passes"


# 6


def _cause(finding: Finding, sources: Sources, width: int, verbosity: int) -> list[str]:
    lines = [_title(finding)]
    if finding.deadlock is not None:
        lines += map(edge_words, finding.deadlock.cycle)
    lines += interleavings(finding, sources, width, verbosity)
    lines += stale_writes(finding)[:2]
    if finding.critical_pair:
        lines.append(finding.pair_verified or "the pair was not verified by forcing both orders")
    if finding.explanation and finding.explanation != lines[0]:
        lines.append(finding.explanation)
    if finding.model is not None:
        speed = "" if finding.model.tokens_per_s is None else f" · {finding.model.tokens_per_s:.0f} tokens/s"
        lines.append(f"model {finding.model.backend} {finding.model.name}: {finding.model.used_for}{speed}")
    return lines


def _cause_briefly(finding: Finding) -> list[str]:
    """Title and the pair's places, without the two interleavings; JSON has them."""
    places = [
        f"{each.task} {each.access}s {each.object} at {shown_path(each.file)}:{each.line}"
        for each in finding.critical_pair
    ]
    pair = [f"{'; '.join(places)}; {finding.pair_verified or 'not verified by forcing both orders'}"] if places else []
    edges = [edge_words(edge) for edge in finding.deadlock.cycle] if finding.deadlock is not None else []
    return [_title(finding), *edges, *pair]


def _title(finding: Finding) -> str:
    pattern = finding.pattern.replace("-", " ")
    if finding.deadlock is not None:
        return deadlock_words(finding.deadlock)
    objects = list(dict.fromkeys(access.object for access in finding.critical_pair))
    if objects:
        return f"{pattern} of {' and '.join(objects)}"
    if finding.cancellations:
        last = finding.cancellations[-1]
        verb = "times out" if last.kind == "timeout" else "is cancelled"
        return f"{pattern}: {last.task} {verb} at {place(last.at)}"
    return f"{pattern}: no pair of accesses was found that decides the outcome"


def _no_cause(inv: Investigation) -> list[str]:
    if inv.outcome == "not-a-race":
        return [f"not a race: {inv.cause}"]
    return [skipped(inv, "no failing interleaving")]


# 7


def _repair(inv: Investigation, finding: Finding, verbosity: int) -> list[str]:
    repair = finding.repair
    if repair is None:
        return [_no_repair(inv, finding)]
    intent = repair.intent
    if intent.kind == "NO_REPAIR" or not repair.diff:
        lines = [f"no repair: {finding.no_repair_reason or intent.rationale}"]
        lines += [_candidates(repair)] if repair.candidates.generated else []
    else:
        place = f"{intent.target}, line{_lines(intent.lines)}"
        lines = [f"{intent.kind} in {place} · {_lock_words(repair.diff)} · {_candidates(repair)}"]
        if not repair.verified:
            lines.append(f"not verified: {finding.no_repair_reason or 'a rung below was not passed'}")
    said = intent.rationale in ("", finding.no_repair_reason)
    if not said and (verbosity > 0 or "unprotected" in intent.rationale):
        lines.append(intent.rationale)
    return lines + (list(repair.tried) if verbosity > 0 else [])


def _no_repair(inv: Investigation, finding: Finding) -> str:
    if finding.no_repair_reason:
        words = finding.no_repair_reason
        return words if words.startswith("not attempted") else f"no repair: {words}"
    if "--no-repair" in inv.command:
        return "not attempted: --no-repair"
    return skipped(inv, "no candidate was generated")


def _lines(lines: tuple[int, int]) -> str:
    return f" {lines[0]}" if lines[0] == lines[1] else f"s {lines[0]}–{lines[1]}"


def _lock_words(diff: str) -> str:
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    locked = any(word in line for line in added for word in ("Lock(", "Semaphore(", "Condition(", "async with "))
    return "adds a lock" if locked else "no lock added"


def _candidates(repair: Repair) -> str:
    counts = repair.candidates
    refuted = [
        (counts.refuted_by_replay, "refuted by one replay"),
        (counts.refuted_by_exploration, "by exploration"),
        (counts.refuted_by_sequential, "changed sequential behaviour"),
        (counts.refuted_by_duplicate_work, "repeated the work of others"),
        (counts.refuted_on_ladder, "fell on a later rung"),
        (counts.refused_by_governor, "refused by the governor"),
        (counts.untried, "untried"),
    ]
    words = [f"{number} {what}" for number, what in refuted if number]
    total = count(counts.generated, "candidate")
    return f"{total}: {', '.join(words)}" if words else total


# 8


def _verify(finding: Finding, verbosity: int) -> list[str]:
    repair = finding.repair
    if repair is None or not repair.diff:
        return ["not attempted: no patch to verify"]
    lines: list[str] = []
    if repair.governor:
        passed = sum(rule.passed for rule in repair.governor)
        failed = [f"{rule.rule}: {rule.detail}" for rule in repair.governor if not rule.passed or verbosity > 1]
        lines += [f"governor {passed}/{len(repair.governor)}", *failed]
    lines += [f"{_passed(rung.passed):<13}  {rung.rung}: {rung.detail}" for rung in repair.ladder]
    if repair.verdict is not None:
        lines.append(f"patched: {verdict_words(repair.verdict)}")
        lines.append(f"bounds: {bounds_words(repair.verdict.bounds)}")
    return lines or ["not attempted: no rung of the ladder was tried"]


def _passed(passed: bool | None) -> str:
    return {True: "passed", False: "FAILED", None: "not attempted"}[passed]
