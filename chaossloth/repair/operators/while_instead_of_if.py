"""WHILE_INSTEAD_OF_IF: a condition that was waited for is tested again after the wake-up.

    if full: room.clear(); await room.wait()      ->      while full: ...

Several waiters may be woken by one event, and only one of them finds what it waited for (Mesa semantics: Lampson and
Redell, "Experience with Processes and Monitors in Mesa", 1980). Preconditions: the `if` has no `else` and is no
`elif`; its test touches the state; its body waits on a primitive (`.wait()`, `.get()`, `.acquire()`) and leaves by no
exit. Not for hand-made futures (`await fut`): a second wait on the same queue needs hand-over code on cancellation as
well. Penalised when the wait is on an event that the body does not clear: the loop would spin.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from chaossloth.diagnose.intents import WHILE_INSTEAD_OF_IF
from chaossloth.evidence import RepairIntent
from chaossloth.repair.dataflow import is_exit, parked_waits
from chaossloth.repair.proposal import Proposal
from chaossloth.repair.render import Draft
from chaossloth.repair.sites import Function, Sites
from chaossloth.repair.source import own_nodes

__all__ = ["propose"]


def propose(sites: Sites, refused: list[str]) -> Iterable[Proposal]:
    for function in sites.functions.values():
        for node in own_nodes(*function.node.body):
            if not isinstance(node, ast.If) or not _touched(function, node):
                continue
            waits = parked_waits(node.body)
            if not waits:
                continue
            reason = _unfit(function, node, waits)
            if reason:
                refused.append(f"{WHILE_INSTEAD_OF_IF} {function.name}:{node.lineno}: {reason}")
                continue
            why = f"the condition at line {node.lineno} may be false again when the wait at line {waits[0].lineno} ends"
            intent = RepairIntent(WHILE_INSTEAD_OF_IF, function.name, (node.lineno, node.lineno), why)
            yield Proposal(function.module, intent, _make(function, node), penalty=0 if _clears(node, waits) else 2)


def _touched(function: Function, node: ast.If) -> bool:
    first, last = node.test.lineno, node.test.end_lineno or node.test.lineno
    return any(first <= line <= last for line in function.required) or any(
        touch.reads for touch in function.touches_between(first, last)
    )


def _unfit(function: Function, node: ast.If, waits: list[ast.Await]) -> str:
    if node.orelse:
        return "the `if` has an `else`"
    if function.module.text.startswith("elif", function.module.start(node)):
        return "the test is an `elif`"
    if any(isinstance(n, ast.stmt) and is_exit(n) for n in own_nodes(*node.body)):
        return "the body leaves by return, raise, break or continue"
    if any(isinstance(w.value, (ast.Name, ast.Attribute)) for w in waits):
        return "the body waits on a future of its own making"
    return ""


def _clears(node: ast.If, waits: list[ast.Await]) -> bool:
    """Does each `x.wait()` come with an `x.clear()`? Queues and conditions need none."""
    cleared = {
        ast.unparse(n.func.value)
        for n in own_nodes(*node.body)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "clear"
    }
    for wait in waits:
        function = wait.value.func if isinstance(wait.value, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr == "wait":
            target = ast.unparse(function.value)
            if target not in cleared and "cond" not in target.lower():
                return False
    return True


def _make(function: Function, node: ast.If) -> Callable[[Draft], None]:
    def make(draft: Draft) -> None:
        start = function.module.start(node)
        draft.edit(start, start + len("if"), "while")
        copied = draft.copy(node)
        assert isinstance(copied, ast.If)
        loop = ast.While(test=copied.test, body=copied.body, orelse=[])
        draft.replace_run(function.module.block_of(node), node, node, [loop])

    return make
