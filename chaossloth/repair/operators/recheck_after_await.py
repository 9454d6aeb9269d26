"""RECHECK_AFTER_AWAIT: the condition that guarded the act is tested once more after the await; no lock.

    if self.x is None:                         if self.x is None:
        fresh = await make()         ->            fresh = await make()
        self.x = fresh                             if self.x is None:
                                                       self.x = fresh

and for a guard that leaves (`if self.started: return`), a second copy of the guard behind the last await before the
act. Preconditions: the test touches the state and is pure; its names are not bound again in between; the act writes
state behind the await (an await inside the act's own assignment is taken out first). A walrus in the test would
overwrite its name. What ran between the two tests is abandoned when the second one fails, so it must be work that can
be done for nothing (`effects`): a value computed, a sleep; never a card charged or a counter moved. A lock is proposed
anyhow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from chaossloth.diagnose.intents import RECHECK_AFTER_AWAIT
from chaossloth.evidence import RepairIntent
from chaossloth.repair.dataflow import awaits, bound_names, is_exit, is_pure, loaded_names, single_await
from chaossloth.repair.effects import effect_of
from chaossloth.repair.operators.hoist import Hoisted, expression_text
from chaossloth.repair.proposal import Proposal
from chaossloth.repair.render import Draft, Item, Keep, Suite
from chaossloth.repair.sites import Function, Sites
from chaossloth.repair.source import Block, own_nodes

__all__ = ["propose"]


def propose(sites: Sites, refused: list[str]) -> Iterable[Proposal]:
    for function in sites.functions.values():
        if not isinstance(function.node, ast.AsyncFunctionDef):
            continue
        for node in own_nodes(*function.node.body):
            if isinstance(node, ast.If) and _tests_state(function, node):
                reason = _unfit(node)
                if reason:
                    refused.append(f"{RECHECK_AFTER_AWAIT} {function.name}:{node.lineno}: {reason}")
                else:
                    yield from _guarded_body(sites, function, node, refused)
                    yield from _early_exit(sites, function, node, refused)


def _tests_state(function: Function, node: ast.If) -> bool:
    first, last = node.test.lineno, node.test.end_lineno or node.test.lineno
    return any(t.reads for t in function.touches_between(first, last))


def _unfit(node: ast.If) -> str:
    if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
        return "the test binds a name"
    return "" if is_pure(node.test) else "the test calls code that may have effects"


# -- if cond: ... await ... act --------------------------------------------------------------------------------------


def _guarded_body(sites: Sites, function: Function, node: ast.If, refused: list[str]) -> Iterator[Proposal]:
    """Nest what follows the last await before the first write; once with all that follows, once with the writes
    only."""
    block = _innermost(function, Block(node, "body"))
    statements = block.statements
    acts = [i for i, s in enumerate(statements) if _writes(sites, function, s)]
    if not acts:
        return
    first = acts[0]
    wait = single_await(statements[first]) if awaits([statements[first]]) else None
    start = first if wait else _behind_last_await(statements, first)
    if start is None or (awaits([statements[first]]) and wait is None):
        return
    if bound_names(
        [*node.body[: node.body.index(_within(function, node, statements[start]))], *statements[:start]]
    ) & loaded_names([node.test]):
        return
    if _noticed(function, node, node.body, statements[start], wait, refused):
        return
    for last in dict.fromkeys([len(statements) - 1, acts[-1]]):
        if not awaits(statements[start + (wait is not None) : last + 1]):
            act = statements[first].lineno
            why = f"the test of line {node.lineno} may no longer hold after the await before line {act}"
            intent = RepairIntent(
                RECHECK_AFTER_AWAIT, function.name, (node.lineno, node.end_lineno or node.lineno), why
            )
            make = _nest(function, node, block, start, last, wait)
            yield Proposal(function.module, intent, make, preference=(0, last - start))


def _innermost(function: Function, block: Block) -> Block:
    """Step into `try:` and `with` suites while they are where the only statements with writes and awaits stand."""
    statements = block.statements
    suites = [s for s in statements if isinstance(s, (ast.Try, ast.With, ast.AsyncWith))]
    if len(suites) == 1 and all(s is suites[0] or not awaits([s]) for s in statements):
        inner = Block(suites[0], "body")
        touched = [n for n in function.lines if suites[0].lineno <= n <= (suites[0].end_lineno or 0)]
        if touched and any(function.direct(n, reads=False) for n in touched):
            return _innermost(function, inner)
    return block


def _noticed(
    function: Function,
    node: ast.If,
    run: Sequence[ast.stmt],
    until: ast.stmt,
    wait: ast.Await | None,
    refused: list[str],
) -> bool:
    """Does something between the two tests leave a trace that abandoning it would not undo?"""
    begin = (until.lineno, until.col_offset)
    between: list[ast.AST] = [wait] if wait else []
    suites: list[ast.stmt] = list(run)
    for statement in suites:
        if (statement.lineno, statement.col_offset) >= begin:
            break
        if isinstance(statement, (ast.Try, ast.With, ast.AsyncWith)) and until in ast.walk(statement):
            between += getattr(statement, "items", ())
            suites += statement.body
        else:
            between.append(statement)
    effect = effect_of(function.module, function.node, between)
    if effect:
        refused.append(f"{RECHECK_AFTER_AWAIT} {function.name}:{node.lineno}: it would be done for nothing: {effect}")
    return effect is not None


def _within(function: Function, node: ast.If, statement: ast.stmt) -> ast.stmt:
    """The statement of the if's own body that holds (or is) the given one."""
    while statement not in node.body:
        above = function.module.parents[statement]
        assert isinstance(above, ast.stmt)
        statement = above
    return statement


def _writes(sites: Sites, function: Function, statement: ast.stmt) -> bool:
    """Did a racing task write the state in this statement (through calls, too), or does it assign the attribute?"""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if any(t.writes for t in function.touches_between(first, last)):
        return True
    attribute = sites.state.attribute
    return any(
        isinstance(n, ast.Attribute) and n.attr == attribute and not isinstance(n.ctx, ast.Load)
        for n in own_nodes(statement)
    )


def _behind_last_await(statements: Sequence[ast.stmt], act: int) -> int | None:
    waits = [i for i in range(act) if awaits([statements[i]])]
    return waits[-1] + 1 if waits else None


def _nest(
    function: Function, node: ast.If, block: Block, start: int, last: int, wait: ast.Await | None
) -> Callable[[Draft], None]:
    def make(draft: Draft) -> None:
        module = function.module
        run = block.statements[start : last + 1]
        hoisted = Hoisted(function, run[0], wait) if wait else None
        header = f"if {expression_text(module.segment(node.test))}:"
        inner = [hoisted.keep if hoisted and s is run[0] else Keep(s) for s in run]
        items: list[Item] = [*([hoisted.line] if hoisted else []), Suite(header, tuple(inner))]
        draft.rewrite(block, start, last, items)
        copies = [draft.copy(s) for s in run]
        before = [hoisted.nodes(draft)[0]] if hoisted else []
        again = ast.If(test=_fresh(node.test), body=copies, orelse=[])  # type: ignore[arg-type]
        draft.replace_run(block, run[0], run[-1], [*before, again])

    return make


def _fresh(expression: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(expression), mode="eval").body


# -- if cond: return; ... await ... act ------------------------------------------------------------------------------


def _early_exit(sites: Sites, function: Function, node: ast.If, refused: list[str]) -> Iterator[Proposal]:
    """Repeat the guard behind the last await before the act."""
    if node.orelse or not is_exit(node.body[-1]) or awaits([node]) or len(node.body) > 2:
        return
    if function.module.text.startswith("elif", function.module.start(node)):
        return
    block = function.module.block_of(node)
    statements = block.statements
    guard = statements.index(node)
    acts = [i for i in range(guard + 1, len(statements)) if _writes(sites, function, statements[i])]
    if not acts:
        return
    act = acts[0]
    wait = single_await(statements[act]) if awaits([statements[act]]) else None
    behind = _behind_last_await(statements, act)
    position = act if wait else behind if behind is not None and behind > guard + 1 else None
    if position is None or (awaits([statements[act]]) and wait is None):
        return
    if bound_names(statements[guard + 1 : position]) & loaded_names([node]):
        return
    if _noticed(function, node, statements[guard + 1 :], statements[position], wait, refused):
        return
    why = f"the guard at line {node.lineno} may no longer hold when the await before line {statements[act].lineno} ends"
    intent = RepairIntent(RECHECK_AFTER_AWAIT, function.name, (node.lineno, statements[act].lineno), why)
    yield Proposal(function.module, intent, _repeat(function, node, block, position, wait), preference=(1, 0))


def _repeat(
    function: Function, node: ast.If, block: Block, position: int, wait: ast.Await | None
) -> Callable[[Draft], None]:
    def make(draft: Draft) -> None:
        act = block.statements[position]
        hoisted = Hoisted(function, act, wait) if wait else None
        items: list[Item] = [hoisted.line, Keep(node), hoisted.keep] if hoisted else [Keep(node), Keep(act)]
        draft.rewrite(block, position, position, items)
        again = ast.parse(ast.unparse(node)).body  # the parser accepts `return` and `continue` anywhere
        before, rest = hoisted.nodes(draft) if hoisted else (None, draft.copy(act))
        draft.replace_run(block, act, act, [*([before] if before else []), *again, rest])

    return make
