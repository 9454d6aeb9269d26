"""The tree transformation: every operation on a value keeps its place, and its operands pass through a hook first.

Only code inside functions is rewritten. Module and class bodies run while a module is imported (or a class is made),
where there is nothing to record and where extra names would show; functions and lambdas inside them are rewritten.
No temporary variable is ever introduced (it would show in `locals()`, is illegal in class-level comprehensions and
leaks from others); see `hooks` for the three devices that make them unnecessary.

Every new node carries the position of the node it stands for, so line numbers and column marks in tracebacks stay.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from chaossloth.subject.nodes import HOOKS, copied, holds_only_constants, is_hook, is_number, move_to_name
from chaossloth.subject.recorder import Site, add_site
from chaossloth.subject.scopes import Function, Scope, ScopeTree, mangled, suspends

__all__ = ["ExpressionRewriter"]

_E = TypeVar("_E", bound=ast.expr)
_R = TypeVar("_R")
_STANDARD = sys.stdlib_module_names


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Builtins, where the name means the builtin: the hook that their arguments pass through, None for none.
_HARMLESS = _words(
    "isinstance issubclass id type callable range super locals globals dir compile __import__ hash abs round int"
    " float ord chr hex bin oct divmod pow open input property staticmethod classmethod slice object breakpoint"
    " complex"
)
_ITERATING = _words("list tuple set frozenset sum any all enumerate zip map filter reversed iter")
_READING = _words("print repr str format ascii bytes bytearray")
_BUILTINS: dict[str, str | None] = {
    **dict.fromkeys(_HARMLESS),
    **dict.fromkeys(_ITERATING, "rk"),
    **dict.fromkeys(_READING, "ra"),
    **dict.fromkeys(("sorted", "min", "max"), "ro"),
    **dict.fromkeys(("len", "bool"), "tr"),
    **dict.fromkeys(("eval", "exec"), "ev"),
    "dict": "rv",
    "next": "nx",
}
_FRESH = frozenset(
    {"list", "set", "sorted", "dict", "bytearray", "object", "enumerate", "zip", "map", "filter", "reversed", "iter"}
)
_SCALAR_CALLS = _words("len isinstance issubclass callable id hash int float str repr ord chr any all")


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites the functions of one module in place."""

    def __init__(self, tree: ScopeTree, filename: str, module: str) -> None:
        self.tree = tree
        self.filename = filename
        self.module = module
        self.scope: Scope = tree.module
        self.qualified: list[str] = []
        self.methods: list[set[str]] = []  # of the enclosing classes
        self.attribute_stores: set[str] = set()
        self.live = False  # inside a function

    # -- building nodes

    def at(self, new: _E, old: ast.AST) -> _E:
        return ast.copy_location(new, old)

    def hook(self, name: str, old: ast.AST, *arguments: ast.expr) -> ast.Call:
        space = self.at(ast.Name(HOOKS, ast.Load()), old)
        return self.at(ast.Call(self.at(ast.Attribute(space, name, ast.Load()), old), list(arguments), []), old)

    def constant(self, value: Any, old: ast.AST) -> ast.expr:
        """A constant; tuples of strings are constants of the compiler too, though not of its grammar."""
        return self.at(ast.Constant(value), old)

    def site(self, node: ast.AST, kind: str) -> ast.expr:
        function = ".".join(self.qualified) or "<module>"
        number = add_site(Site(self.filename, getattr(node, "lineno", 0), function, kind))
        return self.constant(number, node)

    def statement(self, call: ast.Call, old: ast.AST) -> ast.Expr:
        return ast.copy_location(ast.Expr(call), old)

    def read(self, node: ast.expr, hook: str, kind: str) -> ast.expr:
        """`node`, already rewritten, through a hook that looks at its value; not if that is known to be a scalar."""
        if self._is_scalar(node) or is_hook(node, hook) or isinstance(node, ast.GeneratorExp):
            return node
        if is_hook(node, "new") and isinstance(node, ast.Call) and holds_only_constants(node.args[0]):
            return node.args[0]  # a display that only this operation sees needs no name
        return self.hook(hook, node, node, self.site(node, kind))

    def _is_scalar(self, node: ast.expr) -> bool:
        """Whether the value certainly has no location of its own."""
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.Compare, ast.Lambda)):
            return True
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not) or self._is_scalar(node.operand)
        if isinstance(node, ast.BinOp):
            number = is_number(node.left) or is_number(node.right)
            return number and not isinstance(node.op, (ast.Mult, ast.Mod))
        called = node.func if isinstance(node, ast.Call) else None
        return isinstance(called, ast.Name) and called.id in _SCALAR_CALLS and self._is_builtin(called.id)

    # -- scopes

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._defaults(node.args)
        node.body = self._inside(node, "<lambda>")(lambda: self.visit(node.body))
        return node

    def _defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(d) for d in arguments.defaults]
        arguments.kw_defaults = [d and self.visit(d) for d in arguments.kw_defaults]

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

    def _plain_name(self, name: str, old: ast.AST) -> ast.expr:
        return self.at(ast.Name(name, ast.Load()), old)

    def _capture(self, what: ast.expr) -> ast.expr:
        """`lambda: what`: its closure cells are those of the variables in `what`; it is never called."""
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return self.at(ast.Lambda(nothing, what), what)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        generators = node.generators
        generators[0].iter = self._iterated(generators[0])
        before = self.scope
        self.scope = self.tree.of[node]
        for generator in generators:
            if generator is not generators[0]:
                generator.iter = self._iterated(generator)
            generator.target = self.visit(generator.target)
            generator.ifs = [self._truth(i) for i in generator.ifs]
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.visit(node.key), self.visit(node.value)
        else:
            node.elt = self.visit(node.elt)
        self.scope = before
        return node if isinstance(node, ast.GeneratorExp) else self._fresh(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _iterated(self, generator: ast.comprehension) -> ast.expr:
        iterable: ast.expr = self.visit(generator.iter)
        return self.read(iterable, "rk", "iteration") if self.live and not generator.is_async else iterable

    def _fresh(self, node: ast.expr) -> ast.expr:
        return self.hook("new", node, node, self.site(node, "creation")) if self.live else node

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
        if variable == "closure":
            return self.hook("cl", node, node, self._capture(self._copy(node)), self.site(node, "closure variable"))
        if variable == "global":
            name = self._mangled(node.id)
            arguments = (self.constant(self.module, node), self.constant(name, node), self.site(node, "global"))
            return self.hook("gl", node, node, *arguments)
        return node

    def _copy(self, node: ast.Name) -> ast.Name:
        return self.at(ast.Name(node.id, ast.Load()), node)

    def _mangled(self, name: str) -> str:
        return mangled(name, self.scope.class_name)

    def _variable(self, name: str) -> str | None:
        """ "closure" or "global" for a name that is recorded here, else None."""
        name = self._mangled(name)
        owner = self.scope.owner(name)
        if owner is None:
            shared = name in self.tree.written_globals or name in self.tree.data_globals
            return "global" if shared and name != HOOKS else None
        return "closure" if name in owner.shared_variables() else None

    def _record_name(self, name: str, old: ast.AST, mode: int | None = None) -> list[ast.stmt]:
        """Statements that record a store (or `mode`) of variable `name`."""
        variable = self._variable(name)
        extra = () if mode is None else (self.constant(mode, old),)
        if variable == "closure":
            capture = self._capture(self._plain_name(name, old))
            return [self.statement(self.hook("cw", old, capture, self.site(old, "closure variable"), *extra), old)]
        if variable == "global":
            arguments = (
                self.constant(self.module, old),
                self.constant(self._mangled(name), old),
                self.site(old, "global"),
            )
            return [self.statement(self.hook("gw", old, *arguments, *extra), old)]
        return []

    def _stored(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """`value` on its way into the single name `target`."""
        if not isinstance(target, ast.Name) or not self.live:
            return value
        variable = self._variable(target.id)
        if variable == "closure":
            capture = self._capture(self._copy(target))
            return self.hook("cs", value, value, capture, self.site(target, "closure variable"))
        if variable == "global":
            name = self.constant(self._mangled(target.id), value)
            return self.hook("gs", value, value, self.constant(self.module, value), name, self.site(target, "global"))
        return value

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        node.value = self._stored(node.target, self.visit(node.value))
        return node

    # -- attributes and items

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if (
            not isinstance(node.ctx, ast.Load)
            and isinstance(node.value, ast.Name)
            and self._imported(node.value) is not None
        ):
            self.attribute_stores.add(node.attr)
        skip = not self.live or (isinstance(node.value, ast.Name) and self._standard_module(node.value))
        node.value = self.visit(node.value)
        if not skip:
            hook = {ast.Load: "ga", ast.Store: "sa", ast.Del: "da"}[type(node.ctx)]
            node.value = self._attribute(hook, node)
        return node

    def _attribute(self, hook: str, node: ast.Attribute, *extra: ast.expr) -> ast.expr:
        name = self.constant(self._mangled(node.attr), node.value)
        return self.hook(hook, node.value, node.value, name, self.site(node, "attribute"), *extra)

    def _imported(self, node: ast.Name) -> str | None:
        """The module that `node` names, where it is an import of the module and nothing else."""
        if self.scope.owner(self._mangled(node.id)) is not None:
            return None
        module = self.tree.module
        single = len(module.bindings.get(node.id, ())) == 1 and node.id not in self.tree.written_globals
        return module.imports.get(node.id) if single else None

    def _standard_module(self, node: ast.Name) -> bool:
        name = self._imported(node)
        return bool(name) and name.partition(".")[0] in _STANDARD  # type: ignore[union-attr]

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

    def _trivial(self, index: ast.expr) -> bool:
        """Constants and plain local names, and tuples and slices of them."""
        if isinstance(index, ast.Constant):
            return True
        if isinstance(index, ast.Name):
            return self.scope.owner(self._mangled(index.id)) is self.scope
        if isinstance(index, ast.UnaryOp):
            return isinstance(index.op, ast.USub) and isinstance(index.operand, ast.Constant)
        if isinstance(index, ast.Slice):
            return all(part is None or self._trivial(part) for part in (index.lower, index.upper, index.step))
        return isinstance(index, ast.Tuple) and all(self._trivial(element) for element in index.elts)

    def _as_value(self, index: ast.expr) -> ast.expr:
        """Slices are only legal inside brackets: elsewhere they are spelled as calls."""
        if isinstance(index, ast.Slice):
            parts = [part or self.at(ast.Constant(None), index) for part in (index.lower, index.upper, index.step)]
            return self.hook("slice_", index, *parts)
        if isinstance(index, ast.Tuple):
            return self.at(ast.Tuple([self._as_value(element) for element in index.elts], ast.Load()), index)
        return index

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
        node.operand = self._truth(node.operand) if isinstance(node.op, ast.Not) else self.visit(node.operand)
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
        node.value = (
            self._call(node.value, awaited=True) if isinstance(node.value, ast.Call) else self.visit(node.value)
        )
        return node

    def _call(self, node: ast.Call, awaited: bool) -> ast.expr:
        if not self.live:
            self.generic_visit(node)
            return node
        callee = node.func
        if isinstance(callee, ast.Name) and self._is_builtin(callee.id):
            return self._builtin(node, callee.id)
        known = self._known(callee)
        node.func = self.visit(callee)
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            value = self.visit(keyword.value)
            keyword.value = self.read(value, "rv", "unpacking") if keyword.arg is None else value
        result = node if known else self._through_hook(node)
        return result if awaited or known == "function" else self._fresh(result)

    def _is_builtin(self, name: str) -> bool:
        return name in _BUILTINS and self.scope.owner(name) is None and name not in self.tree.module.bindings

    def _known(self, callee: ast.expr) -> str | None:
        """ "function" or "class" of this module, or asyncio's: calls that need no look at their arguments."""
        if isinstance(callee, ast.Name):
            return self._known_name(callee.id)
        if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name):
            if self._imported(callee.value) == "asyncio":
                return "class"
            own = bool(self.methods) and callee.attr in self.methods[-1] and callee.value.id == "self"
            return "function" if own else None
        return None

    def _known_name(self, name: str) -> str | None:
        name = self._mangled(name)
        scope = self.scope.owner(name) or self.tree.module
        node = scope.plain_definitions.get(name)
        single = len(scope.bindings.get(name, ())) == 1 and name not in self.tree.written_globals
        if node is None or not single or scope.kind == "class":
            return None
        return "class" if isinstance(node, ast.ClassDef) else "function"

    def _through_hook(self, node: ast.Call) -> ast.expr:
        repeatable = all(self._trivial(value) for value in (*node.args, *(k.value for k in node.keywords)))
        repeatable = repeatable and all(k.arg is not None for k in node.keywords)
        hook = ("cf" if repeatable else "call") + ("k" if node.keywords else "")
        prepared = self.hook(hook, node, node.func, self.site(node, "call"), *node.args)
        prepared.keywords = node.keywords
        if repeatable:
            outer = self.at(ast.Call(prepared, copied(node.args), copied(node.keywords)), node)
        else:
            outer = self.at(ast.Call(prepared, [], []), node)
        function = node.func
        starred = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
        if isinstance(function, ast.Attribute) and not starred:
            move_to_name(outer, function)
        return outer

    def _builtin(self, node: ast.Call, name: str) -> ast.expr:
        self.generic_visit(node)
        hook = _BUILTINS[name]
        if hook is not None:
            looked_at = node.args[:1] if hook in ("tr", "nx", "ev") else node.args
            for position, argument in enumerate(looked_at):
                if not isinstance(argument, ast.Starred):
                    node.args[position] = self.read(argument, hook, "call")
        for keyword in node.keywords:
            if keyword.arg is None:
                keyword.value = self.read(keyword.value, "rv", "unpacking")
        return self._fresh(node) if name in _FRESH else node
