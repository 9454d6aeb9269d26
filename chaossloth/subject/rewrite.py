"""The tree transformation: every operation on a value keeps its place, and its operands pass through a hook first.

Only code inside functions is rewritten. Module and class bodies run while a module is imported (or a class is made),
where there is nothing to record and where extra names would show; functions and lambdas inside them are rewritten.
No temporary variable is ever introduced (it would show in `locals()`, is illegal in class-level comprehensions and
leaks from others); see `hooks` for the three devices that make them unnecessary.

Every new node carries the position of the node it stands for, so line numbers and column marks in tracebacks stay.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

from chaossloth.subject.builder import BUILTINS, CONSUMING, FRESH, ITERATORS, Builder
from chaossloth.subject.nodes import copied, move_to_name
from chaossloth.subject.recorder import READ
from chaossloth.subject.scopes import Function, suspends

__all__ = ["ExpressionRewriter"]

_R = TypeVar("_R")


class ExpressionRewriter(Builder):
    """Rewrites the expressions of one module in place."""

    # -- scopes

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._defaults(node.args, "<lambda>")
        node.body = self._inside(node, "<lambda>")(lambda: self.visit(node.body))
        return node

    def _defaults(self, arguments: ast.arguments, function: str) -> None:
        positional = [*arguments.posonlyargs, *arguments.args]
        named = positional[len(positional) - len(arguments.defaults) :]
        arguments.defaults = [self._default(d, a, function) for d, a in zip(arguments.defaults, named, strict=True)]
        keywords = zip(arguments.kw_defaults, arguments.kwonlyargs, strict=True)
        arguments.kw_defaults = [d and self._default(d, a, function) for d, a in keywords]

    def _default(self, default: ast.expr, argument: ast.arg, function: str) -> ast.expr:
        """A mutable default is one object for all calls: it gets its name where it is made."""
        visited: ast.expr = self.visit(default)
        if not isinstance(default, (ast.List, ast.Dict, ast.Set, ast.Call, ast.ListComp, ast.SetComp, ast.DictComp)):
            return visited
        where = (self.module, ".".join([*self.qualified, function]), argument.arg)
        return self.hook("de", default, visited, *(self.constant(part, default) for part in where))

    def _inside(self, node: Function, name: str) -> Callable[[Callable[[], _R]], _R]:
        def run(body: Callable[[], _R]) -> _R:
            before = self.scope, self.live, self.qualified
            nested = [*self.qualified, "<locals>"] if self.live else self.qualified
            self.scope, self.live, self.qualified = self.tree.of[node], True, [*nested, name]
            try:
                return body()
            finally:
                self.scope, self.live, self.qualified = before

        return run

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        generators = node.generators
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        waits = suspends([*elements, *(i for g in generators for i in g.ifs), *generators[1:]])
        later = isinstance(node, ast.GeneratorExp) and node not in self.consumed
        generators[0].iter = self._iterated(generators[0], waits or later)
        before = self.scope
        self.scope = self.tree.of[node]
        for generator in generators:
            if generator is not generators[0]:
                generator.iter = self._iterated(generator, waits)
            generator.target = self.visit(generator.target)
            generator.ifs = [self._truth(i) for i in generator.ifs]
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.visit(node.key), self.visit(node.value)
        else:
            node.elt = self.visit(node.elt)
        self.scope = before
        return node if isinstance(node, ast.GeneratorExp) else self._fresh(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _iterated(self, generator: ast.comprehension, waits: bool) -> ast.expr:
        called = isinstance(generator.iter, ast.Call)
        self._consume([generator.iter])
        iterable: ast.expr = self.visit(generator.iter)
        if not self.live:
            return iterable
        if generator.is_async:
            return self._asynchronously(iterable, called)
        return self.read(iterable, "it" if waits else "rk", "iteration")

    def _asynchronously(self, iterable: ast.expr, called: bool) -> ast.expr:
        """The iterable of an `async for`; one that a call has just made is nobody else's."""
        return iterable if called else self.hook("ag", iterable, iterable, self.site(iterable, "iteration"))

    def _fresh(self, node: ast.expr, kind: str = "creation") -> ast.expr:
        """A value that is made here. kind "call": it may keep what the call at the same site was given."""
        return self.hook("new", node, node, self.site(node, kind)) if self.live else node

    # -- displays

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        return self._fresh(node) if isinstance(node.ctx, ast.Load) else node

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        return self._fresh(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        for position, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            visited = self.visit(value)
            node.values[position] = self.read(visited, "rv", "unpacking") if key is None and self.live else visited
            node.keys[position] = key and self.visit(key)
        return self._fresh(node)

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        self.generic_visit(node)
        if self.live and isinstance(node.ctx, ast.Load):
            node.value = self.read(node.value, "rk", "unpacking")
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        if self.live:
            node.value = self.read(node.value, "ra", "format")
        return node

    # -- names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not self.live or not isinstance(node.ctx, ast.Load):
            return node
        variable = self._variable(node.id)
        if variable is not None and self._may_be_unbound(node.id):
            return self._recorded_first(node)
        if variable == "closure":
            return self.hook("cl", node, node, self._capture(self._copy(node)), self.site(node, "closure variable"))
        if variable == "global":
            name = self._mangled(node.id)
            arguments = (self.constant(self.module, node), self.constant(name, node), self.site(node, "global"))
            return self.hook("gl", node, node, *arguments)
        return node

    def _recorded_first(self, node: ast.Name) -> ast.expr:
        """`(cw(...), name)[1]`: that the variable is unbound is an answer too, and it raises."""
        (record,) = self._record_name(node.id, node, READ)
        assert isinstance(record, ast.Expr)
        pair = self.at(ast.Tuple([record.value, node], ast.Load()), node)
        return self.at(ast.Subscript(pair, self.constant(1, node), ast.Load()), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        node.value = self._stored(node.target, self.visit(node.value))
        return node

    # -- attributes and items

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        standard = isinstance(node.value, ast.Name) and self._standard_module(node.value)
        skip = not self.live or (standard and isinstance(node.ctx, ast.Load) and node.attr not in self.stored)
        node.value = self.visit(node.value)
        if not skip:
            hook = {ast.Load: "ga", ast.Store: "sa", ast.Del: "da"}[type(node.ctx)]
            node.value = self._attribute(hook, node)
        return node

    def _attribute(self, hook: str, node: ast.Attribute, *extra: ast.expr) -> ast.expr:
        name = self.constant(self._mangled(node.attr), node.value)
        return self.hook(hook, node.value, node.value, name, self.site(node, "attribute"), *extra)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value, node.slice = self.visit(node.value), self.visit(node.slice)
        if self.live:
            hook = {ast.Load: "gi", ast.Store: "si", ast.Del: "di"}[type(node.ctx)]
            self._item(hook, node)
        return node

    def _item(self, hook: str, node: ast.Subscript, *extra: ast.expr) -> None:
        """`o[i]` to `gi(o, i, site)[i]`, or with the index kept in between where evaluating it twice could show."""
        if self._trivial(node.slice):
            index = self._as_value(copied(node.slice))
        else:
            index = self.hook("sk", node.slice, self._as_value(node.slice))
            node.slice = self.hook("k", node.slice)
        node.value = self.hook(hook, node.value, node.value, index, self.site(node, "item"), *extra)

    # -- operators

    def _truth(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, whose truth is taken."""
        if isinstance(node, ast.BoolOp):
            node.values = [self._truth(value) for value in node.values]
            return node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._truth(node.operand)
            return node
        visited: ast.expr = self.visit(node)
        return self.read(visited, "tr", "truth") if self.live else visited

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        node.values = [*[self._truth(value) for value in node.values[:-1]], self.visit(node.values[-1])]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            node.operand = self._truth(node.operand)
        else:
            node.operand = self.visit(node.operand)
            if self.live:
                node.operand = self.read(node.operand, "rv", "operand")
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test, node.body, node.orelse = self._truth(node.test), self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        scalar = self._is_scalar(node)
        self.generic_visit(node)
        if self.live and not scalar:
            hook = "ra" if isinstance(node.op, ast.Mod) else "rv"  # "..." % values
            node.left, node.right = self.read(node.left, hook, "operand"), self.read(node.right, hook, "operand")
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if not self.live:
            self.generic_visit(node)
            return node
        operands = [node.left, *node.comparators]
        scalar = [self._is_scalar(operand) for operand in operands]
        visited: list[ast.expr] = [self.visit(operand) for operand in operands]
        for position, operator in enumerate(node.ops):
            left, right = position, position + 1
            if isinstance(operator, (ast.In, ast.NotIn)):
                self._membership(visited, left, right)
            elif not isinstance(operator, (ast.Is, ast.IsNot)) and not scalar[left] and not scalar[right]:
                visited[left] = self.read(visited[left], "ra", "comparison")
                visited[right] = self.read(visited[right], "ra", "comparison")
        node.left, node.comparators = visited[0], visited[1:]
        return node

    def _membership(self, operands: list[ast.expr], left: int, right: int) -> None:
        x, o = operands[left], operands[right]
        if self._is_scalar(o):
            return
        site = self.site(o, "membership")
        if self._trivial(x):
            operands[right] = self.hook("ci", o, o, copied(x), site)
        elif left == 0 and not suspends([o]):
            operands[left] = self.hook("push", x, x)
            operands[right] = self.hook("cp", o, o, site)
        else:
            operands[right] = self.hook("rk", o, o, site)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        self.generic_visit(node)
        if self.live:
            node.value = self.read(node.value, "it", "iteration")
        return node

    # -- calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self._call(node, awaited=False)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        awaited = node.value
        coroutine = isinstance(awaited, ast.Call) and self._makes_coroutine(awaited.func)
        node.value = self._call(awaited, awaited=True) if isinstance(awaited, ast.Call) else self.visit(awaited)
        if self.live and not coroutine:
            node.value = self.hook("aw", node.value, node.value, self.site(node, "await"))
        return node

    def _call(self, node: ast.Call, awaited: bool) -> ast.expr:
        if not self.live:
            self.generic_visit(node)
            return node
        callee = node.func
        if isinstance(callee, ast.Name) and self._is_builtin(callee.id):
            return self._builtin(node, callee.id)
        known = self._known(callee)
        if isinstance(callee, ast.Attribute) and callee.attr in ("join", "extend", "update"):
            self._consume(node.args)
        node.func = self.visit(callee)
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            value = self.visit(keyword.value)
            keyword.value = self.read(value, "rv", "unpacking") if keyword.arg is None else value
        result = node if known else self._through_hook(node)
        return result if awaited or known == "function" else self._fresh(result, "call")

    def _consume(self, arguments: list[ast.expr]) -> None:
        """Iterators made in `arguments` are consumed by what they are given to, and nobody else has them."""
        self.consumed.update(a for a in arguments if isinstance(a, (ast.GeneratorExp, ast.Call)))

    def _through_hook(self, node: ast.Call) -> ast.expr:
        repeatable = all(self._trivial(value) for value in (*node.args, *(k.value for k in node.keywords)))
        repeatable = repeatable and all(k.arg is not None for k in node.keywords)
        starred = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
        hook = ("cf" if repeatable else "call") + ("k" if node.keywords else "")
        if starred:
            receiver = self.hook("cx", node, node.func, self.site(node, "call"))
            prepared = self.at(ast.Call(receiver, node.args, node.keywords), node)
        else:
            prepared = self.hook(hook, node, node.func, self.site(node, "call"), *node.args)
            prepared.keywords = node.keywords
        if repeatable:
            outer = self.at(ast.Call(prepared, copied(node.args), copied(node.keywords)), node)
        else:
            outer = self.at(ast.Call(prepared, [], []), node)
        function = node.func
        if isinstance(function, ast.Attribute) and not starred:
            move_to_name(outer, function)
        return outer

    def _builtin(self, node: ast.Call, name: str) -> ast.expr:
        if name in CONSUMING:
            self._consume(node.args)
        own_key = all(self._is_own_function(k.value) for k in node.keywords if k.arg == "key")
        self.generic_visit(node)
        hook = BUILTINS[name] if own_key else "rt"
        if hook is not None:
            looked_at = node.args[:1] if hook in ("tr", "nx", "ev") else node.args
            for position, argument in enumerate(looked_at):
                if not isinstance(argument, ast.Starred):
                    literal = hook == "ev" and isinstance(argument, ast.Constant)
                    through = self.hook(hook, argument, argument, self.site(argument, "call"))
                    node.args[position] = through if literal else self.read(argument, hook, "call")
        for keyword in node.keywords:
            if keyword.arg is None:
                keyword.value = self.read(keyword.value, "rv", "unpacking")
            elif keyword.arg == "key" and not own_key:
                keyword.value = self.hook("ck", keyword.value, keyword.value, self.site(keyword.value, "call"))
        alone = name in ITERATORS and node in self.consumed
        return self._fresh(node) if name in FRESH and not alone else node

    def _is_own_function(self, node: ast.expr) -> bool:
        """Whether `node` is certainly a function of the subject's, which records what it does."""
        return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and self._known_name(node.id) == "function")
