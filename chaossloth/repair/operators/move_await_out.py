"""MOVE_AWAIT_OUT: what was read before an await and is used after it is read after it instead; no lock.

    cur = self.s[k]; await ping(); self.s[k] = cur + 1     ->     await ping(); cur = self.s[k]; self.s[k] = cur + 1

The read moves behind the last await before the write, and with it every pure statement between that depends on it.
Preconditions: read and write stand in one block; the read is `name = <pure expression>`; what stands between neither
uses nor binds the moved names, binds nothing that they read, and does not write the state; nothing is awaited
afterwards up to the write. Where the write itself contains the await (`self.n += await f()`), the await is taken out
first (`hoist`): it must run unconditionally, and only pure parts of the statement may be overtaken.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from chaossloth.diagnose.intents import MOVE_AWAIT_OUT
from chaossloth.evidence import RepairIntent
from chaossloth.repair.dataflow import (
    awaits,
    bound_names,
    is_pure,
    loaded_names,
    local_read,
    single_await,
    stored_paths,
)
from chaossloth.repair.operators.hoist import Hoisted
from chaossloth.repair.proposal import Proposal
from chaossloth.repair.render import Draft, Item, Keep
from chaossloth.repair.sites import Function, Sites
from chaossloth.repair.source import Block, Refused

__all__ = ["propose"]


def propose(sites: Sites, refused: list[str]) -> Iterable[Proposal]:
    for function in sites.direct_functions():
        if not isinstance(function.node, ast.AsyncFunctionDef):
            continue
        for block in function.module.blocks(function.node):
            for read, write in _pairs(function, block):
                yield from _site(sites, function, block, read, write, refused)


def _pairs(function: Function, block: Block) -> Iterator[tuple[int, int]]:
    """(index of the first statement that reads the state, index of the next one that writes it), critical lines
    only."""
    statements = block.statements
    reads = [i for i, s in enumerate(statements) if _touches(function, s, reads=True)]
    writes = [i for i, s in enumerate(statements) if _touches(function, s, reads=False)]
    for write in writes:
        before = [
            i for i in reads if i < write and local_read(statements[i]) and not any(i < w < write for w in writes)
        ]
        own = isinstance(statements[write], (ast.Assign, ast.AugAssign)) and write in reads
        for read in [*before[:1], *([write] if own else [])]:
            lines = range(statements[read].lineno, (statements[write].end_lineno or 0) + 1)
            if any(line in lines for line in function.required):
                yield read, write


def _touches(function: Function, statement: ast.stmt, reads: bool) -> bool:
    lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    return any(line in lines and function.direct(line, reads) for line in function.lines)


def _site(
    sites: Sites, function: Function, block: Block, read: int, write: int, refused: list[str]
) -> Iterator[Proposal]:
    statements = block.statements
    target = statements[write]
    wait = single_await(target) if not isinstance(target, ast.Expr) else None
    if isinstance(target, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)):
        if awaits([target]):
            return  # its inner blocks are visited on their own
    elif awaits([target]) and wait is None:
        refused.append(f"{MOVE_AWAIT_OUT} {function.name}:{target.lineno}: the write's own await cannot be taken out")
        return
    barrier = max((i for i in range(read + 1, write) if awaits([statements[i]])), default=None)
    if barrier is None and wait is None:
        return
    moved = _moved(sites, function, block, read, write if wait else barrier or write, write)
    if isinstance(moved, str):
        refused.append(f"{MOVE_AWAIT_OUT} {function.name}:{statements[read].lineno}: {moved}")
        return
    last = write if wait else barrier
    assert last is not None
    lines = (statements[read].lineno, target.end_lineno or target.lineno)
    why = f"the state read at line {lines[0]} is used only after the await: it can be read there"
    intent = RepairIntent(MOVE_AWAIT_OUT, function.name, lines, why)
    yield Proposal(function.module, intent, _make(function, block, read, last, moved, wait), preference=(len(moved),))


def _moved(sites: Sites, function: Function, block: Block, read: int, until: int, write: int) -> list[ast.stmt] | str:
    """The statements that move behind `until` (those in read..until that depend on the read), or why they cannot."""
    statements = block.statements
    if read == write:
        return []
    moved = [statements[read]]
    own_await = until == write
    for statement in statements[read + 1 : until if own_await else until + 1]:
        names = bound_names(moved)
        depends = bool(loaded_names([statement]) & names)
        rereads = local_read(statement) and _touches(function, statement, reads=True)
        if depends and not local_read(statement) and not _pure_statement(statement):
            return f"line {statement.lineno} uses what was read and has effects of its own"
        if (depends or rereads) and not awaits([statement]):
            moved.append(statement)
            continue
        if bound_names([statement]) & (names | loaded_names(moved)):
            return f"line {statement.lineno} binds a name that the read uses"
        if sites.state.attribute in stored_paths([statement]) or _touches(function, statement, reads=False):
            return f"line {statement.lineno} writes the state"
    wait = single_await(statements[write]) if own_await else None
    if wait is not None and loaded_names([wait]) & bound_names(moved):
        return f"the await at line {wait.lineno} needs what was read"
    return moved


def _pure_statement(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and is_pure(statement.value)


def _make(
    function: Function, block: Block, read: int, last: int, moved: list[ast.stmt], wait: ast.Await | None
) -> Callable[[Draft], None]:
    def make(draft: Draft) -> None:
        statements = block.statements
        run = statements[read : last + 1]
        if any(s in moved and awaits([s]) for s in run):
            raise Refused("a moved statement awaits")
        stay = [s for s in run if s not in moved and not (wait and s is run[-1])]
        items: list[Item] = [Keep(s) for s in stay]
        hoisted = Hoisted(function, run[-1], wait) if wait else None
        if hoisted:
            items.append(hoisted.line)
        items += [Keep(s) for s in moved]
        if hoisted:
            items.append(hoisted.keep)
        draft.rewrite(block, read, last, items)
        nodes: list[ast.AST] = [draft.copy(s) for s in stay]
        late = [draft.copy(s) for s in moved]
        if hoisted:
            assignment, rest = hoisted.nodes(draft)
            nodes += [assignment, *late, rest]
        else:
            nodes += late
        draft.replace_run(block, run[0], run[-1], nodes)

    return make
