"""Shared by the lock-free operators: take the await out of an assignment, so that the rest of it runs without a gap.

    self.total += await self.fetch()     ->     value = await self.fetch()
                                                self.total += value

`x += await f()` reads x *before* it awaits; the second form reads it afterwards.
"""

from __future__ import annotations

import ast

from chaossloth.repair.render import Draft, Edit, Keep, Line
from chaossloth.repair.sites import Function
from chaossloth.repair.source import Refused

__all__ = ["Hoisted", "expression_text"]


class Hoisted:
    """The two halves of a statement whose await was taken out: plan items for the text, nodes for the tree."""

    def __init__(self, function: Function, statement: ast.stmt, wait: ast.Await) -> None:
        module = function.module
        self._name = module.fresh_name("value" if "value" not in module.identifiers else "awaited")
        self._wait = wait
        self._statement = statement
        text = expression_text(module.segment(wait))
        self.line = Line(f"{self._name} = {text}")
        self.keep = Keep(statement, (Edit(module.start(wait), module.end(wait), self._name),))

    def nodes(self, draft: Draft) -> tuple[ast.stmt, ast.stmt]:
        """(the new assignment, the statement without its await); to be called once per draft."""
        wait = draft.copy(self._wait)
        statement = draft.copy(self._statement)
        assert isinstance(wait, ast.expr) and isinstance(statement, ast.stmt)
        draft.replace_expression(self._wait, ast.Name(id=self._name, ctx=ast.Load()))
        return ast.Assign(targets=[ast.Name(id=self._name, ctx=ast.Store())], value=wait), statement


def expression_text(text: str) -> str:
    """The source of an expression, in parentheses where it cannot stand alone on one logical line."""
    for candidate in (text, f"({text})"):
        try:
            body = ast.parse(f"async def f():\n x = {candidate}\n").body
        except SyntaxError:
            continue
        if len(body) == 1 and isinstance(body[0], ast.AsyncFunctionDef) and len(body[0].body) == 1:
            return candidate
    raise Refused("the expression cannot be written again on its own")
