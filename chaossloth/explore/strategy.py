"""Strategies: who picks at a choice point. One method, `choose(options, run) -> index`; option 0 is stock order.

Contract (after AWS Shuttle's scheduler trait): a strategy is made for one execution, draws only from its own generator,
and returns an index into `options`. It may read `run` and the options' handles, and changes neither.

StockOrder, Deviate (sparse deviations; also strict replay), RandomWalk, PCT (Burckhardt et al., ASPLOS 2010), POS
(Yuan, Yang, Gu, "Partial order aware concurrency sampling", CAV 2018), Fair (a wrapper: the bypass bound of
`reorder`), Guided (follows a recorded order of steps as far as the program at hand allows; for patched programs and
for reversed pairs), Equivalent (another order of the same partial order), Sequential."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from chaossloth.loop.run import Chooser, Handle, Nondeterminism, RawStep, Run

__all__ = [
    "PCT",
    "POS",
    "Deviate",
    "Equivalent",
    "Fair",
    "Guided",
    "RandomWalk",
    "Sequential",
    "StockOrder",
]

Options = list[Handle | None]


class StockOrder:
    def choose(self, options: Options, run: Run) -> int:
        return 0


class Deviate:
    """Option 0 except where `deviations` ({choice ordinal: option}) says otherwise.

    strict: an option that does not exist raises Nondeterminism (replay); otherwise it is taken modulo their number.
    """

    def __init__(self, deviations: Mapping[int, int], strict: bool = False) -> None:
        self._deviations = deviations
        self._strict = strict

    def choose(self, options: Options, run: Run) -> int:
        wanted = self._deviations.get(len(run.taken), 0)
        if wanted < len(options):
            return wanted
        if not self._strict:
            return wanted % len(options)
        raise Nondeterminism(
            "diverged",
            f"choice {len(run.taken)} (step {run.count}) has {len(options)} options,"
            f" the schedule asks for number {wanted}",
        )


class RandomWalk:
    """Uniform among the options, after keeping option 0 with probability `stay`: else all completions come early."""

    def __init__(self, seed: int, stay: float) -> None:
        self._random = random.Random(seed)
        self._stay = stay

    def choose(self, options: Options, run: Run) -> int:
        draw = self._random
        return 0 if draw.random() < self._stay else int(draw.random() * len(options))


class PCT:
    """Probabilistic concurrency testing: random priorities, `depth - 1` points at which the running one falls lowest.

    steps: bound on the number of choice points (from earlier executions). "Deliver nothing" has a priority of its own.
    """

    def __init__(self, seed: int, depth: int, steps: int) -> None:
        self._random = random.Random(seed)
        self._changes = set(self._random.sample(range(max(steps, depth)), depth - 1)) if depth > 1 else set()
        self._priority: dict[str, float] = {}

    def choose(self, options: Options, run: Run) -> int:
        priority = self._priority
        best, chosen, name = -2.0, 0, ""
        for index, handle in enumerate(options):
            key = handle.proc.key if handle is not None else "-"
            if key not in priority:
                priority[key] = self._random.random()
            if priority[key] > best:
                best, chosen, name = priority[key], index, key
        if len(run.taken) in self._changes:
            self._changes.remove(len(run.taken))  # one change per point: only the running one falls
            priority[name] = -1.0 + self._random.random() * 0.1
            return self.choose(options, run)
        return chosen


class POS:
    """Partial order sampling: random priorities, drawn anew for a pending step when a step that conflicts with it runs.

    accesses: (identity, ordinal) -> locations with modes that such a step had in earlier executions, to guess what a
    pending step is going to access; `remember` adds those of an execution.
    """

    def __init__(self, seed: int, accesses: dict[tuple[str, int], dict[object, int]]) -> None:
        self._random = random.Random(seed)
        self._accesses = accesses
        self._priority: dict[tuple[str, int], float] = {}

    def choose(self, options: Options, run: Run) -> int:
        best, chosen = -1.0, 0
        keys = [_step_of(handle) for handle in options]
        for index, key in enumerate(keys):
            if key not in self._priority:
                self._priority[key] = self._random.random()
            if self._priority[key] > best:
                best, chosen = self._priority[key], index
        mine = self._accesses.get(keys[chosen])
        if mine:
            for key in keys:
                theirs = self._accesses.get(key)
                if theirs and key != keys[chosen] and _conflict(mine, theirs):
                    self._priority[key] = self._random.random()
        return chosen

    def remember(self, run: Run) -> None:
        """Learn what the steps of an execution accessed."""
        for step in run.steps:
            found: dict[object, int] = {}
            for raw in step.accesses:
                found[raw[:2]] = found.get(raw[:2], 0) | raw[2]
            self._accesses[step.proc.key, step.ordinal] = found


def _conflict(one: Mapping[object, int], other: Mapping[object, int]) -> bool:
    return any((mode | other.get(location, 0)) & 2 and other.get(location, 0) & 3 for location, mode in one.items())


def _step_of(handle: Handle | None) -> tuple[str, int]:
    return ("-", 0) if handle is None else (handle.proc.key, handle.proc.steps + 1)


class Fair:
    """Another strategy under the fairness bound of `reorder`: what was passed over `bound` times runs now."""

    def __init__(self, chooser: Chooser, bound: int) -> None:
        self._chooser = chooser
        self._bound = bound

    def choose(self, options: Options, run: Run) -> int:
        chosen = self._chooser.choose(options, run)
        first = options[0]  # it has waited longest
        return 0 if first is not None and first.passed >= self._bound else chosen


class Equivalent:
    """An order equivalent to an execution's: only steps whose predecessors have run, by one of two rules.

    past: for each of `steps` the bit set of the steps before it. bound: None: what has waited longest (closest to
    FIFO). Else: what was passed over `bound` times, else what a handle that is passed over waits for, else what the
    longest chain of steps depends on; so that steps with time to spare wait, which spreads the passing over.
    """

    def __init__(self, steps: Sequence[RawStep], past: Sequence[int], bound: int | None) -> None:
        self._past = {(step.proc.key, step.ordinal): mask for step, mask in zip(steps, past, strict=True)}
        self._index = {(step.proc.key, step.ordinal): index for index, step in enumerate(steps)}
        self._bound = bound
        self._length = _longest_chains(past) if bound is not None else []
        self._done = 0
        self._seen = 0

    def choose(self, options: Options, run: Run) -> int:
        for step in run.steps[self._seen :]:
            index = self._index.get((step.proc.key, step.ordinal))
            if index is not None:
                self._done |= 1 << index
        self._seen = len(run.steps)
        allowed = [
            (position, self._index[key])
            for position, key in enumerate(map(_step_of, options))
            if key in self._past and not self._past[key] & ~self._done
        ]
        if not allowed:
            return 0
        if self._bound is None:
            return allowed[0][0]
        for position, _ in allowed:
            handle = options[position]
            if handle is not None and handle.passed >= self._bound:
                return position
        needed = self._held_up(options)
        return max(allowed, key=lambda each: (needed >> each[1] & 1, self._length[each[1]], -each[0]))[0]

    def _held_up(self, options: Options) -> int:
        """Bit set of what the handle depends on that was passed over most and may not run yet."""
        worst, mask = 0, 0
        for handle in options:
            past = self._past.get(_step_of(handle), 0) & ~self._done
            if handle is not None and past and handle.passed > worst:
                worst, mask = handle.passed, past
        return mask


def _longest_chains(past: Sequence[int]) -> list[int]:
    """For each step the number of steps on the longest chain that depends on it."""
    length = [1] * len(past)
    for later in range(len(past) - 1, -1, -1):
        mask = past[later]
        while mask:
            earlier = mask.bit_length() - 1
            mask ^= 1 << earlier
            length[earlier] = max(length[earlier], length[later] + 1)
    return length


class Guided:
    """Follows `order` (identities of steps) as closely as the program allows: of the enabled ones the first in it runs.

    hold: {(identity, ordinal): (identity, ordinal)}: a step that must not run before another has.
    """

    def __init__(
        self,
        order: Sequence[tuple[str, str]],
        extended: Iterable[tuple[str, int]] = (),
        hold: Mapping[tuple[str, int], tuple[str, int]] | None = None,
    ) -> None:
        self._positions: dict[str, list[int]] = {}
        for index, (key, _) in enumerate(order):
            self._positions.setdefault(key, []).append(index)
        self._used: dict[str, int] = {}
        self._seen = 0
        self._extended = set(extended)
        self._hold = hold or {}

    def _catch_up(self, run: Run) -> None:
        for key, _ in run.order[self._seen :]:
            self._used[key] = self._used.get(key, 0) + 1
        self._seen = len(run.order)

    def _position(self, handle: Handle) -> float:
        key = handle.proc.key
        after = self._hold.get((key, self._used.get(key, 0) + 1))
        if after is not None and self._used.get(after[0], 0) < after[1]:
            return float("inf")
        positions = self._positions.get(key, ())
        used = self._used.get(key, 0)
        return positions[used] if used < len(positions) else 1e12

    def choose(self, options: Options, run: Run) -> int:
        self._catch_up(run)
        if options[0] is None and len(options) == 2 and options[1] is not None and options[1].cause == "yield":
            return 1 if (options[1].proc.key, options[1].proc.yields) in self._extended else 0
        some = next(handle for handle in options if handle is not None)
        ranked = [
            min((self._position(h) for h in some.loop._ready), default=1e12)
            if handle is None
            else self._position(handle)
            for handle in options
        ]
        return ranked.index(min(ranked))


class Sequential:
    """One call after another: first the steps of the main task's first child (with all it started), then the second's.

    descending: the other way round. Used to compare a program with its patched version where nothing is concurrent.
    """

    def __init__(self, descending: bool = False) -> None:
        self._sign = -1 if descending else 1

    def choose(self, options: Options, run: Run) -> int:
        some = next(handle for handle in options if handle is not None)
        ranked = [
            min((self._rank(h) for h in some.loop._ready), default=10**9) if handle is None else self._rank(handle)
            for handle in options
        ]
        return ranked.index(min(ranked))

    def _rank(self, handle: Handle) -> int:
        key = handle.proc.key if handle.cause != "timer" else handle.owner
        parts = key.split(".", 2)
        if len(parts) < 2:
            return -(10**9)
        digits = parts[1].split("c", 1)[0]
        return self._sign * int(digits)
