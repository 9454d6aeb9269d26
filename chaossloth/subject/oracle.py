"""Serializability as the oracle of concurrent calls: is the outcome that of *some* sequential order?

An outcome is the calls' results (or exceptions) and the object's observable state, flattened to ``{path: leaf}``.
Flat maps make the three questions simple: equal (one set lookup), where different (compare keys), and what to leave
out (drop paths).

* Equality is Python's own where a class defines `__eq__` or is a built-in container; any other object is its class
  and its attributes, and *which* paths share it (so two instances instead of one are seen even when they look alike).
* Not state: functions, modules, asyncio and threading primitives, loops, files, loggers, and containers of nothing
  else. A repaired class that has one lock more compares equal to the original.
* What differs between two runs of the same sequential order (other seeds, other clock) is not a result of
  interleaving: such paths are dropped, and named.
* Equal calls (same method, same arguments) are interchangeable: one order stands for all that only rename them.

Source: Papadimitriou, "The serializability of concurrent database updates", JACM 26(4), 1979; Herlihy and Wing,
"Linearizability", TOPLAS 12(3), 1990 (real-time order is not required here: all calls start together).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chaossloth.evidence import Frame, Outcome
from chaossloth.subject.canonical import Flat, Path, show_leaf, show_path

__all__ = ["Raised", "SerialOutcomes", "different_behaviour", "relabellings", "sequential_orders"]

MAX_ORDERS = 24
_MAX_RELABELLINGS = 720
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that left one call. label: "A", "B", ...; where: the subject's innermost line."""

    label: str
    type: str
    text: str
    where: Frame | None = None


def sequential_orders(groups: Sequence[int], seed: int = 0) -> tuple[list[tuple[int, ...]], bool]:
    """Orders of the calls to execute, as index tuples, and whether these are all.

    groups[i] is equal for calls that are equal (method and arguments): orders that differ by a renaming of equal
    calls are executed once. At most 24; beyond that the identity, its reverse, and a seeded sample.
    """
    indices = tuple(range(len(groups)))
    total = math.factorial(len(groups))
    for group in set(groups):
        total //= math.factorial(groups.count(group))
    if total <= MAX_ORDERS:
        return list(_distinct(indices, groups)), True
    generator = random.Random(seed)
    orders = {indices: None, indices[::-1]: None}
    while len(orders) < MAX_ORDERS:
        shuffled = list(indices)
        generator.shuffle(shuffled)
        orders[tuple(shuffled)] = None
    return list(orders), False


def _distinct(indices: tuple[int, ...], groups: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Distinct arrangements of the groups; within a group the calls keep their order."""
    remaining = {group: [i for i in indices if groups[i] == group] for group in groups}

    def extend(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == len(indices):
            yield prefix
            return
        for members in remaining.values():
            if members:
                first = members.pop(0)
                yield from extend((*prefix, first))
                members.insert(0, first)

    yield from extend(())


def relabellings(groups: Sequence[int]) -> tuple[list[tuple[int, ...]], bool]:
    """Permutations p (result of call i moves to call p[i]) that only exchange equal calls; whether these are all."""
    members = [[i for i, g in enumerate(groups) if g == group] for group in dict.fromkeys(groups)]
    total = math.prod(math.factorial(len(m)) for m in members)
    found: list[tuple[int, ...]] = []
    # `product` keeps all it is given in memory, and 26 equal calls have 26! orders.
    bounded = [list(itertools.islice(itertools.permutations(m), _MAX_RELABELLINGS)) for m in members]
    for parts in itertools.product(*bounded):
        target = list(range(len(groups)))
        for sources, targets in zip(members, parts, strict=True):
            for source, new in zip(sources, targets, strict=True):
                target[source] = new
        found.append(tuple(target))
        if len(found) == _MAX_RELABELLINGS:
            break
    return found, len(found) == total


@dataclass
class SerialOutcomes:
    """All outcomes that sequential orders have, and the paths that say nothing about interleaving.

    add:   the flat outcomes (one per relabelling) of two runs of one order with different seeds.
    judge: an `Outcome` for a concurrent execution.
    """

    complete: bool = True
    orders: int = 0
    call_labels: tuple[str, ...] = ()
    unstable: set[Path] = field(default_factory=set)
    unstable_children: set[Path] = field(default_factory=set)
    exceptions: set[str] = field(default_factory=set)
    _raw: list[Flat] = field(default_factory=list)
    _known: dict[frozenset[tuple[Path, object]], Flat] | None = None

    def add(self, first: Sequence[Flat], second: Sequence[Flat], raised: Iterable[Raised] = ()) -> None:
        """Outcomes of one order in two runs; `raised` names what the calls raised in either."""
        for one, two in zip(first, second, strict=True):
            self._compare(one, two)
            self._raw.append(one)
        self.exceptions.update(entry.type for entry in raised)
        self._known = None

    def _compare(self, one: Flat, two: Flat) -> None:
        for path in one.keys() | two.keys():
            if one.get(path) == two.get(path):
                continue
            if path in one and path in two:
                self.unstable.add(path)
                continue
            # A key that only one run has (a random id): what the container holds is not comparable by key.
            while path[:-1] and not (path[:-1] in one and path[:-1] in two):
                path = path[:-1]
            self.unstable_children.add(path[:-1])

    def unstable_names(self) -> tuple[str, ...]:
        """Excluded paths for the report, outermost only, e.g. "Session.created_at"."""
        shown = {show_path(p) for p in self.unstable if not self._hidden_by_parent(p)}
        shown |= {f"{show_path(p)}[...]" for p in self.unstable_children if not self._excluded(p)}
        return tuple(sorted(shown))

    def _hidden_by_parent(self, path: Path) -> bool:
        return any(path[:n] in self.unstable or path[:n] in self.unstable_children for n in range(len(path)))

    def _excluded(self, path: Path) -> bool:
        return path in self.unstable or self._hidden_by_parent(path)

    def stable_part(self, flat: Flat) -> Flat:
        """The outcome without the excluded paths."""
        if not self.unstable and not self.unstable_children:
            return flat
        return {path: leaf for path, leaf in flat.items() if not self._excluded(path)}

    @property
    def known(self) -> dict[frozenset[tuple[Path, object]], Flat]:
        """Distinct sequential outcomes (stable part)."""
        if self._known is None:
            parts = [self.stable_part(flat) for flat in self._raw]
            self._known = {frozenset(part.items()): part for part in parts}
        return self._known

    def judge(self, flat: Flat, raised: Sequence[Raised] = ()) -> Outcome:
        """Whether some sequential order has this outcome; if none, what differs from the nearest."""
        part = self.stable_part(flat)
        if frozenset(part.items()) in self.known:
            return Outcome(ok=True)
        nearest = min(self.known.values(), key=lambda other: len(_differences(part, other)), default={})
        different = sorted(_differences(part, nearest), key=lambda p: (_is_result(p, self.call_labels), len(p), p))
        new = [entry for entry in raised if entry.type not in self.exceptions]
        if not new:
            return Outcome(False, "not-serializable", None, self._sentence(part, nearest, different))
        return self._judge_exception(new, part, nearest, different)

    def _judge_exception(self, new: Sequence[Raised], part: Flat, nearest: Flat, different: Sequence[Path]) -> Outcome:
        labels = {entry.label for entry in new}
        others = [p for p in different if not any(p[0] == f"result of {label}" for label in labels)]
        first = new[0]
        said = f": {first.text.splitlines()[0]}" if first.text else ""
        text = f"call {first.label} raises {first.type}{said}; one after another no call raises it"
        if others:
            text += "; " + self._sentence(part, nearest, others)
        return Outcome(False, "not-serializable" if others else "exception", first.type, text, first.where)

    def _sentence(self, part: Flat, nearest: Flat, different: Sequence[Path]) -> str:
        leaves = _telling(part, nearest, different)
        shown = [self._difference(part, path, _entries(part, nearest, path, different)) for path in leaves[:_SHOWN]]
        if len(leaves) > _SHOWN:
            shown.append(f"and {len(leaves) - _SHOWN} more differ")
        text = "; ".join(shown)
        if not self.complete:
            text += f" (compared with {self.orders} sampled sequential orders, not all)"
        return text

    def _difference(self, part: Flat, path: Path, entries: str) -> str:
        values = sorted({_leaf_text(flat, path) for flat in self.known.values()})
        now = _leaf_text(part, path)
        shown = f"{show_path(path)} is {now}{f' ({entries})' if entries else ''}"
        if now in values:
            # The value itself is possible, but not together with the others.
            return f"{shown}, which no sequential order has together with the rest"
        return f"{shown}; one after another it is {' or '.join(values[:4])}"


def _differences(one: Flat, two: Flat) -> set[Path]:
    return {path for path in one.keys() | two.keys() if one.get(path) != two.get(path)}


def _telling(one: Flat, two: Flat, different: Sequence[Path]) -> list[Path]:
    """The differing paths worth showing.

    Where both sides have a thing, what differs inside it is shown instead of it. What only one side has is shown by
    the outermost thing that differs because of it: the missing thing itself, or the container of another length, or
    the one of another kind (whose parts have no counterpart).
    """
    one_sided = {p for p in different if p not in one or p not in two}
    other_kind = {p for p in different if p not in one_sided and one[p][0] != two[p][0]}
    kept = [p for p in different if not any(p[:n] in one_sided or p[:n] in other_kind for n in range(1, len(p)))]
    holders = {p[:-1] for p in kept if p in one_sided}.intersection(kept)
    shown = [p for p in kept if p not in one_sided or p[:-1] not in holders]
    return [p for p in shown if p in holders or not any(q[: len(p)] == p and len(q) > len(p) for q in shown)]


def _entries(one: Flat, two: Flat, holder: Path, different: Sequence[Path]) -> str:
    """Which entries of a container only one side has: "['b'] is missing, ['c'] is new"; "" when there are none."""
    if holder not in one or holder not in two or one[holder][0] != two[holder][0]:
        return ""
    own = [p for p in different if p[:-1] == holder]
    missing = [p[-1] for p in own if p not in one]
    new = [p[-1] for p in own if p not in two]
    said = [(missing, "missing"), (new, "new")]
    return ", ".join(
        f"{', '.join(names[:_SHOWN])}{' and more' if len(names) > _SHOWN else ''} "
        f"{'is' if len(names) == 1 else 'are'} {word}"
        for names, word in said
        if names
    )


def _leaf_text(flat: Flat, path: Path) -> str:
    """The value at a path; where it is missing, the outermost thing that is missing with it."""
    gone = next((path[:n] for n in range(1, len(path)) if path[:n] not in flat), None)
    if gone is None:
        return show_leaf(flat.get(path))
    return f"absent with {show_path(gone)}"


def _is_result(path: Path, labels: Sequence[str]) -> bool:
    return path[0] in {f"result of {label}" for label in labels}


def different_behaviour(before: SerialOutcomes, after: SerialOutcomes) -> str | None:
    """What a changed program does differently when its calls run one after another; None when nothing.

    Attributes that only the changed program has are no difference while they hold nothing (None, an empty container,
    False): a repair may add its own bookkeeping.
    """
    old = {frozenset(_merged(flat, before, after).items()) for flat in before.known.values()}
    for flat in after.known.values():
        part = _merged(flat, before, after)
        added = _idle_additions(part, before)
        part = {path: leaf for path, leaf in part.items() if path not in added}
        if frozenset(part.items()) not in old:
            nearest = min(before.known.values(), key=lambda other: len(_differences(part, other)), default={})
            path = min(_differences(part, nearest), key=lambda p: (len(p), p), default=("the outcome",))
            now, then = show_leaf(part.get(path)), show_leaf(nearest.get(path))
            return f"{show_path(path)} becomes {now}; before the change {then}"
    reached = {frozenset(_without_idle(_merged(f, before, after), before).items()) for f in after.known.values()}
    if old - reached:
        return f"{len(old - reached)} of {len(old)} sequential outcomes of the original do not occur any more"
    return None


def _merged(flat: Flat, *both: SerialOutcomes) -> Flat:
    for outcomes in both:
        flat = outcomes.stable_part(flat)
    return flat


def _idle_additions(part: Flat, before: SerialOutcomes) -> set[Path]:
    known: set[Path] = set().union(*(flat.keys() for flat in before.known.values()))
    return {p for p, leaf in part.items() if p not in known and len(p) > 1 and p[-1].startswith(".") and _idle(leaf)}


def _without_idle(part: Flat, before: SerialOutcomes) -> Flat:
    added = _idle_additions(part, before)
    return {path: leaf for path, leaf in part.items() if path not in added}


def _idle(leaf: object) -> bool:
    if not isinstance(leaf, tuple) or len(leaf) < 2:
        return False
    empty = leaf[0] == "primitives" or (leaf[0] == "container" and leaf[-1] == 0) or leaf[-1] == ()
    return empty or leaf[-1] is None or leaf[-1] is False
