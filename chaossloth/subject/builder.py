"""What the tree transformation needs to know of the place it is at: new nodes, sites, and what a name means there."""

from __future__ import annotations

import ast
import sys
from typing import Any, TypeVar

from chaossloth.subject.nodes import HOOKS, holds_only_constants, is_hook, is_number, last_name
from chaossloth.subject.recorder import Site, add_site
from chaossloth.subject.scopes import Scope, ScopeTree, mangled

__all__ = ["BUILTINS", "CONSUMING", "FRESH", "ITERATORS", "Builder"]

_E = TypeVar("_E", bound=ast.expr)
_STANDARD = sys.stdlib_module_names


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Builtins, where the name means the builtin: the hook that their arguments pass through, None for none.
_HARMLESS = _words(
    "isinstance issubclass id type callable range super locals globals dir compile __import__ ord chr hex bin oct"
    " input property staticmethod classmethod slice object breakpoint"
)
_ITERATING = _words("list tuple set frozenset sum any all enumerate zip map filter reversed iter")
_READING = _words("print repr str format ascii bytes bytearray hash abs round int float complex divmod pow")
BUILTINS: dict[str, str | None] = {
    **dict.fromkeys(_HARMLESS),
    **dict.fromkeys(_ITERATING, "rk"),
    **dict.fromkeys(_READING, "ra"),
    **dict.fromkeys(("sorted", "min", "max"), "ro"),
    **dict.fromkeys(("len", "bool"), "tr"),
    **dict.fromkeys(("eval", "exec"), "ev"),
    "dict": "rv",
    "next": "nx",
}
ITERATORS = frozenset({"enumerate", "zip", "map", "filter", "reversed", "iter"})
FRESH = frozenset({"list", "set", "sorted", "dict", "bytearray", "object"}) | ITERATORS
# What takes all that a generator expression yields before it returns.
CONSUMING = frozenset({"list", "tuple", "set", "frozenset", "dict", "sorted", "sum", "min", "max", "any", "all"})
_SCALAR_CALLS = _words("len isinstance issubclass callable id hash int float str repr ord chr any all")


_JOINING = _words("gather wait wait_for as_completed shield")  # they look at futures
_GIVING_FUTURES = _words("gather shield ensure_future create_task wrap_future Future Task run_coroutine_threadsafe")


class Builder(ast.NodeTransformer):
    """The state of a rewriting and the nodes it makes.

    scope, qualified, live: where the traversal is: scope, parts of the qualified name, whether inside a function.
    methods: names of the functions in the bodies of the enclosing classes.
    """

    def __init__(self, tree: ScopeTree, filename: str, module: str) -> None:
        self.tree = tree
        self.filename = filename
        self.module = module
        self.scope: Scope = tree.module
        self.qualified: list[str] = []
        self.methods: list[set[str]] = []  # of the enclosing classes
        self.live = False  # inside a function
        self._numbers: dict[Scope, set[str]] = {}
        self.consumed: set[ast.expr] = set()  # generator expressions that are consumed where they are made
        self.stored: set[str] = set()  # names of attributes that the module sets on something else than `self`
        self.deleted: set[str] = set()  # names of variables that it deletes
        self.exposes = False  # it may set globals of modules by other means than their names
        self.shares_contexts = False  # it makes contexts that several tasks may run in

    def survey(self, tree: ast.Module) -> None:
        """Look through the whole module for what decides how names are treated everywhere in it."""
        reaching, setting = False, False
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                self._survey_attribute(node)
                reaching |= node.attr in ("modules", "import_module")
                setting |= node.attr == "__dict__"
            elif isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Del):
                    self.deleted.add(node.id)
                self.exposes |= node.id == "globals"
                reaching |= node.id in ("import_module", "__import__")
                setting |= node.id in ("setattr", "delattr", "vars")
                self.shares_contexts |= node.id in ("copy_context", "Context")
            elif isinstance(node, ast.Call):
                self.exposes |= self._sets_on_module(node)
        self.exposes |= reaching and setting

    def _survey_attribute(self, node: ast.Attribute) -> None:
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not isinstance(node.ctx, ast.Load) and not own:
            self.stored.add(node.attr)
        self.shares_contexts |= node.attr in ("copy_context", "Context")
        if node.attr == "__dict__" and isinstance(node.value, ast.Name):
            self.exposes |= self._imported(node.value) is not None

    def _sets_on_module(self, node: ast.Call) -> bool:
        """`setattr(module, ...)`, `vars(module)` with an imported name."""
        setting = isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr", "vars")
        first = node.args[0] if setting and node.args else None
        return isinstance(first, ast.Name) and self._imported(first) is not None

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

    def _is_number(self, name: str) -> bool:
        """Whether every value that local `name` is bound to in this function is a number."""
        if self.scope.owner(self._mangled(name)) is not self.scope:
            return False
        if self.scope not in self._numbers:
            node = next(node for node, scope in self.tree.of.items() if scope is self.scope)
            self._numbers[self.scope] = self._names_of_numbers(node)
        return name in self._numbers[self.scope]

    def _names_of_numbers(self, function: ast.AST) -> set[str]:
        numbers, others = set[str](), set[str]()
        good: set[ast.AST] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and self._gives_number(node.value):
                good.update(t for t in node.targets if isinstance(t, ast.Name))
            elif isinstance(node, ast.AugAssign | ast.For) and self._gives_number(node):
                good.add(node.target)
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                (numbers if node in good else others).add(node.id)
            elif isinstance(node, ast.arg):
                others.add(node.arg)
            elif isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and node.name:
                others.add(node.name)
        return numbers - others

    def _gives_number(self, node: ast.expr | ast.AugAssign | ast.For) -> bool:
        """Whether the value, or what the statement binds its target to, is certainly a number."""
        if isinstance(node, ast.AugAssign):
            return self._gives_number(node.value)
        if isinstance(node, ast.For):
            return isinstance(node.iter, ast.Call) and last_name(node.iter.func) == "range"
        called = node.func if isinstance(node, ast.Call) else None
        return is_number(node) or (
            isinstance(called, ast.Name) and called.id in ("len", "int", "float", "ord") and self._is_builtin(called.id)
        )

    def _plain_name(self, name: str, old: ast.AST) -> ast.expr:
        return self.at(ast.Name(name, ast.Load()), old)

    def _capture(self, what: ast.expr) -> ast.expr:
        """`lambda: what`: its closure cells are those of the variables in `what`; it is never called."""
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return self.at(ast.Lambda(nothing, what), what)

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

    def _may_be_unbound(self, name: str) -> bool:
        """Whether reading variable `name`, which is recorded here, may find it deleted or not bound yet."""
        mangled_name = self._mangled(name)
        if name in self.deleted:
            return True
        owner = self.scope.owner(mangled_name)
        if owner is None:
            return mangled_name not in self.tree.module.bindings
        return min(place for place, _in_loop in owner.bindings[mangled_name]) > owner.captured[mangled_name]

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

    def _is_builtin(self, name: str) -> bool:
        return name in BUILTINS and self.scope.owner(name) is None and name not in self.tree.module.bindings

    def _makes_coroutine(self, callee: ast.expr) -> bool:
        """Whether calling `callee` certainly gives a coroutine, never a future."""
        if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name):
            return self._imported(callee.value) == "asyncio" and callee.attr not in _GIVING_FUTURES
        if not isinstance(callee, ast.Name) or self._known_name(callee.id) != "function":
            return False
        name = self._mangled(callee.id)
        scope = self.scope.owner(name) or self.tree.module
        return isinstance(scope.plain_definitions[name], ast.AsyncFunctionDef)

    def _known(self, callee: ast.expr) -> str | None:
        """ "function" or "class" of this module, or asyncio's: calls that need no look at their arguments."""
        if isinstance(callee, ast.Name):
            return self._known_name(callee.id)
        if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name):
            if self._imported(callee.value) == "asyncio":
                return "class" if callee.attr not in _JOINING else None
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
