"""The least lateness with which a stock event loop can follow an execution: time that passes while the loop is busy.

A stock loop looks at the clock once per round. An execution of a FIFO model says which timers had been due by then and
which had not; that is a system of difference constraints over unknown times: B(r) of each look r, T(e) of each step e
that created a timer, rising along the execution;

    a timer delivered at look r:                        T(creator) + length <= B(r)
    the same timer at each look r' since its creation:  T(creator) + length >  B(r')
    two timers delivered at one look:                   the first is due no later than the second

The objective is the time between looks while handles were ready, plus, where the loop was idle, the time by which it
overslept its first deadline. A linear program finds the least; no solution means that no clock can show this order.
"""

from __future__ import annotations

from chaossloth.loop.run import Boundary, PlannedTimer, Run

__all__ = ["least_lateness"]

_TICK_S = 1e-6
_MAX_BOUNDARIES = 2_000


class _Program:
    """Rows `sum(coefficient * variable) <= bound`, an objective, and variables by name, all of them >= 0."""

    def __init__(self) -> None:
        self.columns: dict[object, int] = {}
        self.rows: list[dict[int, float]] = []
        self.bounds: list[float] = []
        self.cost: dict[int, float] = {}

    def column(self, name: object) -> int:
        return self.columns.setdefault(name, len(self.columns))

    def at_most(self, terms: dict[object, float], bound: float) -> None:
        self.rows.append({self.column(name): factor for name, factor in terms.items()})
        self.bounds.append(bound)

    def costs(self, name: object, factor: float) -> None:
        column = self.column(name)
        self.cost[column] = self.cost.get(column, 0.0) + factor

    def least(self) -> float | None:
        """The least value of the objective; None when the rows contradict each other."""
        import numpy as np
        from scipy.optimize import linprog
        from scipy.sparse import lil_matrix

        if not self.rows:
            return 0.0
        matrix = lil_matrix((len(self.rows), len(self.columns)))
        for number, row in enumerate(self.rows):
            for column, factor in row.items():
                matrix[number, column] += factor
        cost = np.zeros(len(self.columns))
        for column, factor in self.cost.items():
            cost[column] = factor
        solution = linprog(cost, A_ub=matrix.tocsr(), b_ub=self.bounds, bounds=(0, None), method="highs")
        return float(solution.fun) if solution.status == 0 else None


def least_lateness(run: Run) -> float | None:
    """Seconds; None when no stock loop can show this order. An upper bound for executions of very many rounds."""
    boundaries = run.boundaries
    if not boundaries or len(boundaries) > _MAX_BOUNDARIES:
        return run.lateness
    program = _Program()
    timers = {id(timer): timer for boundary in boundaries for timer in (*boundary.delivered, *boundary.waiting)}
    creators = sorted({timer.creator for timer in timers.values() if timer.creator >= 0})
    _rising(program, boundaries, creators)
    for number, boundary in enumerate(boundaries):
        for timer in boundary.delivered:
            program.at_most({**_created(timer.creator, 1.0), ("look", number): -1.0}, -timer.lasts)
        for timer in boundary.waiting:
            program.at_most({**_created(timer.creator, -1.0), ("look", number): 1.0}, timer.lasts - _TICK_S)
        for first, second in zip(boundary.delivered, boundary.delivered[1:], strict=False):
            _due_in_order(program, first, second)
        _price(program, boundaries, number)
    least = program.least()
    return None if least is None else max(0.0, round(least, 9))


def _due_in_order(program: _Program, first: PlannedTimer, second: PlannedTimer) -> None:
    """What one look delivers comes in the order of deadlines."""
    terms = _created(first.creator, 1.0)
    for name, factor in _created(second.creator, -1.0).items():
        terms[name] = terms.get(name, 0.0) + factor
    program.at_most(terms, second.lasts - first.lasts)


def _created(step: int, factor: float) -> dict[object, float]:
    """The time of a timer's creation; those made before the first step were made at 0."""
    return {("step", step): factor} if step >= 0 else {}


def _rising(program: _Program, boundaries: list[Boundary], creators: list[int]) -> None:
    """Looks and steps in the order of the execution have rising times."""
    points: list[tuple[int, int, object]] = [(b.count, 0, ("look", n)) for n, b in enumerate(boundaries)]
    points += [(step, 1, ("step", step)) for step in creators]
    points.sort(key=lambda point: point[:2])
    for (_, _, before), (_, _, after) in zip(points, points[1:], strict=False):
        program.at_most({before: 1.0, after: -1.0}, 0.0)


def _price(program: _Program, boundaries: list[Boundary], number: int) -> None:
    """What the time before look `number` costs."""
    boundary = boundaries[number]
    if boundary.busy:
        program.costs(("look", number), 1.0)
        if number:
            program.costs(("look", number - 1), -1.0)
        return
    if not boundary.delivered:
        return
    program.costs(("overslept", number), 1.0)
    timer = boundary.delivered[0]
    program.at_most({("look", number): 1.0, ("overslept", number): -1.0, **_created(timer.creator, -1.0)}, timer.lasts)
    before = [step for step in _steps_before(boundaries, number) if ("step", step) in program.columns]
    if before and number:
        program.costs(("step", before[-1]), 1.0)  # steps before the pause took time, too
        program.costs(("look", number - 1), -1.0)


def _steps_before(boundaries: list[Boundary], number: int) -> range:
    first = boundaries[number - 1].count if number else 0
    return range(first, boundaries[number].count)
