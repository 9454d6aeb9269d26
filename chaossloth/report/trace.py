"""The interleaving as a table: who did what to the contested object, at which line, in which order.

A trace holds every recorded access of every step; a person needs the few that decide. Rows are the accesses to the
objects of the critical pair (with -v: to everything that two tasks share and one of them writes), and the suspensions
during which another task touched them. The pair is marked ① and ② in both interleavings, so that the swap is seen.

Failing and passing stand side by side where the width allows, else one above the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from chaossloth.evidence import Access, CriticalAccess, Finding, Frame, Step
from chaossloth.report.table import Row, Sources, Style, table_lines
from chaossloth.report.text import MARK, escape, pad

__all__ = ["Sources", "interleavings", "stale_writes"]

SIDE_BY_SIDE = 88  # narrower, two columns hold no readable source text
_LIMITS = {-1: 20, 0: 20, 1: 80}
_VERBS = {"read": "reads", "write": "writes", "update": "updates"}
_PAIR = "①②"


def interleavings(finding: Finding, sources: Sources, width: int, verbosity: int) -> list[str]:
    """Preformatted rows (two leading spaces) of at most `width` cells; [] when nothing was recorded."""
    failing = _rows(finding.trace.get("failing", ()), finding.critical_pair, verbosity)
    passing = _rows(finding.trace.get("passing", ()), finding.critical_pair, verbosity)
    if not failing:
        return _pair_alone(finding.critical_pair, sources, width)
    recorded = {row.location for row in [*failing, *passing] if row.value is not None}
    failing, passing = (
        _prepared(failing, finding, recorded, verbosity),
        _prepared(passing, finding, recorded, verbosity),
    )
    both = [*failing, *passing]
    column = (width - 5) // 2
    style = Style.fitting(both, sources, column)
    beside = bool(passing) and width >= SIDE_BY_SIDE and style.readable
    if not beside:
        column = width - 2
        style = Style.fitting(both, sources, column)
    left = ["failing", *table_lines(failing, style, sources, column)]
    right = ["nearest passing", *table_lines(passing, style, sources, column)] if passing else []
    if not beside:
        return [f"  {line}" for line in left + right]
    pairs = zip_longest(left, right, fillvalue="")
    return [f"  {pad(a, column)} │ {b}".rstrip() for a, b in pairs]


def _prepared(rows: list[Row], finding: Finding, recorded: set[str], verbosity: int) -> list[Row]:
    return _shorten(_stale(_mark(_absent(rows, recorded), finding.critical_pair)), verbosity)


def _absent(rows: list[Row], recorded: set[str]) -> list[Row]:
    """Say "absent" where an item was read that was not there.

    Known only of items whose value is recorded whenever there is one (`recorded`): there, no value means no item.
    """
    return [
        replace(row, note=f"{row.note} absent")
        if row.mode == "read" and row.value is None and row.name.endswith("]") and row.location in recorded
        else row
        for row in rows
    ]


def _pair_alone(pair: Sequence[CriticalAccess], sources: Sources, width: int) -> list[str]:
    """Without a recorded trace the critical pair itself is the table."""
    rows = [
        Row(c.task, c.file, c.line, _note(c.access, c.value), c.step, pair=mark)
        for c, mark in zip(pair, _PAIR, strict=False)
    ]
    style = Style.fitting(rows, sources, width - 2)
    return [f"  {row}" for row in table_lines(rows, style, sources, width - 2)]


def _note(mode: str, value: str | None) -> str:
    verb = _VERBS[mode]
    return f"{verb} {escape(value)}" if value is not None else verb


def _rows(steps: Sequence[Step], pair: Sequence[CriticalAccess], verbosity: int) -> list[Row]:
    contested = _contested(steps, pair, verbosity)
    involved = {step.proc for step in steps if any(a.location in contested for a in step.accesses)}
    rows: list[Row] = []
    for position, step in enumerate(steps):
        for access in step.accesses:
            placed = bool(access.stack) and access.stack[0].line > 0  # the oracle's reads have no line
            if placed and access.location in contested:
                _append(rows, step, access)
        if step.proc in involved and step.suspended_at is not None and _touched(steps, position, contested):
            at = step.suspended_at
            rows.append(Row(step.task, at.file, at.line, "suspended", step.index, step.proc))
    return rows


def _append(rows: list[Row], step: Step, access: Access) -> None:
    """Add a row, or join it to the one before: `x += 1` reads and writes on one line of one step."""
    at: Frame = access.stack[0]
    note = _note(access.mode, access.value)
    last = rows[-1] if rows else None
    same = last is not None and (last.step, last.file, last.line, last.location) == (
        step.index,
        at.file,
        at.line,
        access.location,
    )
    if last is not None and same and last.mode == "read" and access.mode != "read":
        rows[-1] = replace(last, note=f"{last.note}, {note}", mode="read+write", value=access.value)
    elif not (last is not None and same and last.note == note):
        known = (access.location, access.name, access.mode, access.value)
        rows.append(Row(step.task, at.file, at.line, note, step.index, step.proc, *known))


def _contested(steps: Sequence[Step], pair: Sequence[CriticalAccess], verbosity: int) -> set[str]:
    named = {critical.object for critical in pair}
    of_pair = {a.location for step in steps for a in step.accesses if a.name in named}
    if of_pair and verbosity <= 0:
        return of_pair
    procs: dict[str, set[str]] = {}
    written: set[str] = set()
    for step in steps:
        for access in step.accesses:
            if not access.sync:
                procs.setdefault(access.location, set()).add(step.proc)
                if access.mode != "read":
                    written.add(access.location)
    return of_pair | {location for location, who in procs.items() if len(who) > 1 and location in written}


def _touched(steps: Sequence[Step], position: int, contested: set[str]) -> bool:
    """Whether another task accesses something contested before the one suspended at `position` goes on."""
    for step in steps[position + 1 :]:
        if step.proc == steps[position].proc:
            return False
        if any(access.location in contested for access in step.accesses):
            return True
    return False


def _mark(rows: list[Row], pair: Sequence[CriticalAccess]) -> list[Row]:
    """Mark the pair: of the rows of that task and line the one most like the critical access, else the last.

    One line of one step may hold several accesses, and the passing interleaving has other steps and values; so step,
    object, kind and value count in this order, as far as they agree.
    """
    marked = list(rows)
    for critical, mark in zip(pair, _PAIR, strict=False):
        matches = [
            (
                row.step == critical.step,
                row.name == critical.object,
                critical.access in row.mode,
                row.value == critical.value,
                index,
            )
            for index, row in enumerate(rows)
            if (row.task, row.line, row.file) == (critical.task, critical.line, critical.file) and row.mode
        ]
        if matches:
            index = max(matches)[-1]
            marked[index] = replace(marked[index], pair=mark)
    return marked


def _stale(rows: list[Row]) -> list[Row]:
    """Note writes that rest on a read which another task's write has overtaken."""
    result: list[Row] = []
    for index, row in enumerate(rows):
        overtaken = _overtaken(rows, index)
        if overtaken is not None:
            read, other = overtaken
            # What is lost; left out where the value was not recorded.
            lost = "" if other.value is None else f" over {escape(other.value)}"
            row = replace(row, lost=lost, stale=f"{MARK} stale since {read.line}")
        result.append(row)
    return result


def _overtaken(rows: Sequence[Row], index: int) -> tuple[Row, Row] | None:
    """For the write at `index`: its task's last read of the place, and the last write by another task since then."""
    row = rows[index]
    if row.mode != "write":
        return None
    other: Row | None = None
    for earlier in reversed(rows[:index]):
        if earlier.location != row.location:
            continue
        if earlier.proc == row.proc:
            return (earlier, other) if other is not None and "read" in earlier.mode else None
        if other is None and ("write" in earlier.mode or earlier.mode == "update"):
            other = earlier
    return None


def stale_writes(finding: Finding) -> list[str]:
    """One sentence for each write of the failing trace that overwrites what its task never read."""
    rows = _rows(finding.trace.get("failing", ()), finding.critical_pair, 0)
    sentences = []
    for index, row in enumerate(rows):
        overtaken = _overtaken(rows, index)
        if overtaken is not None:
            read, other = overtaken
            sentences.append(
                f"{row.task}'s write at line {row.line} rests on its read at line {read.line}, "
                f"made before {other.task}'s write at line {other.line}"
            )
    return list(dict.fromkeys(sentences))


def _shorten(rows: list[Row], verbosity: int) -> list[Row]:
    """At most the limit for `verbosity`: what surrounds the pair, and where each of its tasks came in.

    A row says how many were left out.
    """
    limit = _LIMITS.get(verbosity)
    if limit is None or len(rows) <= limit:
        return rows
    decisive = [index for index, row in enumerate(rows) if row.pair != " "]
    wanted = decisive or [index for index, row in enumerate(rows) if row.stale] or [len(rows) - 1]
    keep = set([*wanted, *_firsts(rows, wanted if decisive else range(len(rows)))][:limit])
    wanted = wanted + [index for index, row in enumerate(rows) if row.stale]
    for distance in range(len(rows)):
        for index in sorted(wanted):
            for near in (index - distance, index + distance):
                if 0 <= near < len(rows) and len(keep) < limit:
                    keep.add(near)
        if len(keep) >= limit:
            break
    for index in range(1, len(rows) - 1):  # a row that says "1 more" would take the room of the row itself
        if index not in keep and {index - 1, index + 1} <= keep:
            keep.add(index)
    result: list[Row] = []
    missing = 0
    for index, row in enumerate(rows):
        if index in keep:
            result += _gap(missing)
            result.append(row)
            missing = 0
        else:
            missing += 1
    return result + _gap(missing)


def _firsts(rows: Sequence[Row], of: Iterable[int]) -> list[int]:
    """Index of the first access of each task that has a row in `of`."""
    procs = {rows[index].proc for index in of}
    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        if row.mode and row.proc in procs:
            first.setdefault(row.proc, index)
    return list(first.values())


def _gap(missing: int) -> list[Row]:
    rows = "1 more row" if missing == 1 else f"{missing} more rows"
    return [Row("", "", 0, f"… {rows}, shown with -vv", -1)] if missing else []
