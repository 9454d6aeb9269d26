"""Which runs of statements a lock could enclose, from the smallest that holds the state transition outward.

A region is a contiguous run of one block. It must hold the lines of the critical pair that lie in its function, and an
await (else the run is atomic already). It is *tight* when it starts and ends with a statement that touches the state:
what stands before and behind, delays above all, stays outside. It is *strong* when one task touched the state in it in
two different steps, so that a lock really makes something atomic; the rest can only exclude others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from chaossloth.repair.dataflow import awaits, parked_waits
from chaossloth.repair.sites import Function
from chaossloth.repair.source import Block, own_nodes

__all__ = ["Region", "holds_forever", "regions", "under_async_with", "under_thread_lock"]

_THREAD_LOCK = re.compile(r"lock|mutex", re.IGNORECASE)
_MAX_PER_FUNCTION = 16


@dataclass(frozen=True, slots=True)
class Region:
    """Statements first..last of a block of `function`; size: statements in it, nested ones included."""

    function: Function
    block: Block
    first: int
    last: int
    tight: bool

    @property
    def statements(self) -> list[ast.stmt]:
        return self.block.statements[self.first : self.last + 1]

    @property
    def lines(self) -> tuple[int, int]:
        run = self.statements
        return run[0].lineno, run[-1].end_lineno or run[-1].lineno

    @property
    def size(self) -> int:
        return sum(isinstance(n, ast.stmt) for n in own_nodes(*self.statements))

    @property
    def strong(self) -> bool:
        steps: dict[str, set[int]] = {}
        for touch in self.function.touches_between(*self.lines):
            steps.setdefault(touch.proc, set()).add(touch.step)
        return any(len(s) > 1 for s in steps.values())

    @property
    def awaits(self) -> bool:
        return awaits(self.statements)


def regions(function: Function) -> list[Region]:
    """Regions of an async function, tight ones first, then by size; empty when nothing may be locked there."""
    if not isinstance(function.node, ast.AsyncFunctionDef):
        return []
    found: list[Region] = []
    for block in function.module.blocks(function.node):
        found += _in_block(function, block)
    found.sort(key=lambda r: (not r.tight, r.size))
    return found[:_MAX_PER_FUNCTION]


def _in_block(function: Function, block: Block) -> Iterator[Region]:
    statements = block.statements
    if function.module.text.startswith("elif", function.module.start(statements[0])):
        return
    start = _preamble(statements) if block.owner is function.node else 0
    spans = [(s.lineno, s.end_lineno or s.lineno) for s in statements]
    touched = [i for i in range(start, len(spans)) if any(spans[i][0] <= n <= spans[i][1] for n in function.lines)]
    if not touched or under_thread_lock(function, statements[0]):
        return

    def holds_pair(low: int, high: int) -> bool:
        return all(any(a <= line <= b for a, b in spans[low : high + 1]) for line in function.required)

    tight = [(a, b) for a in touched for b in touched if a <= b and holds_pair(a, b)]
    if not tight:
        return
    low, high = min(tight, key=lambda run: run[1] - run[0])
    wider = [(low, k) for k in range(high + 1, len(spans))] + [(k, high) for k in range(start, low)]
    for a, b in dict.fromkeys([*tight, *wider, (start, len(spans) - 1)]):
        run = statements[a : b + 1]
        if not any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)) for n in own_nodes(*run)):
            yield Region(function, block, a, b, (a, b) in tight)


def _preamble(statements: list[ast.stmt]) -> int:
    """Docstring, `global` and `nonlocal` lines at the head of a function stay outside of any region."""
    for position, statement in enumerate(statements):
        docstring = position == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not docstring and not isinstance(statement, (ast.Global, ast.Nonlocal)):
            return position
    return len(statements)


def under_thread_lock(function: Function, statement: ast.stmt) -> bool:
    """Inside a synchronous `with` on something called a lock: waiting there would block the whole loop."""
    for above in function.module.ancestors(statement):
        if above is function.node:
            return False
        if isinstance(above, ast.With) and any(_THREAD_LOCK.search(ast.unparse(i.context_expr)) for i in above.items):
            return True
    return False


def under_async_with(function: Function, statement: ast.stmt) -> list[str]:
    """The expressions of the `async with` statements that enclose the statement in its function."""
    found: list[str] = []
    for above in function.module.ancestors(statement):
        if above is function.node:
            break
        if isinstance(above, ast.AsyncWith):
            found += [ast.unparse(i.context_expr) for i in above.items]
    return found


def holds_forever(region: Region) -> bool:
    """A wait for somebody else's action, or an endless loop, inside: whoever should act may need the lock."""
    endless = any(
        isinstance(n, ast.While) and isinstance(n.test, ast.Constant) and n.test.value
        for n in own_nodes(*region.statements)
    )
    return endless or bool(parked_waits(region.statements))
