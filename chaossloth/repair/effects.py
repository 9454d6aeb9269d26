"""May this piece of code run once more, or be run for nothing, without anybody noticing?

A second test after an await abandons what was done up to it. That is harmless only where nothing but a value was
produced: a card that was charged stays charged. What counts is what can be seen in the module: stores to anything but
fresh local objects, and calls of code that is not in the module, are effects. An own function is followed, through all
overrides that the module holds. A call whose result nobody uses has no purpose but its effects (Meyer's command-query
separation, "Object-Oriented Software Construction", 1988), also where its body is a stand-in that only sleeps; so of
the awaits whose value is dropped only a sleep and a primitive's wait are harmless.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaossloth.repair.dataflow import PURE_CALLS, PURE_METHODS
from chaossloth.repair.locks import family, receiver
from chaossloth.repair.source import FunctionNode, ModuleSource, own_nodes

__all__ = ["effect_of"]

_VALUES = frozenset({"object", "range", "enumerate", "zip", "reversed", "iter", "repr", "hash", "type", "super"})
_MODULES = frozenset({"random", "time", "math", "operator"})
_PRIMITIVES = frozenset({"Lock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Queue"})
_WAITS = frozenset({"wait", "join"})
_DECORATORS = frozenset({"staticmethod", "classmethod", "property", "abstractmethod"})


def effect_of(module: ModuleSource, function: FunctionNode, nodes: Iterable[ast.AST]) -> str | None:
    """Why running these nodes of the function for nothing could be noticed; None where it could not."""
    return _Effects(module).of_nodes(function, list(nodes))


@dataclass
class _Effects:
    module: ModuleSource
    asked: set[FunctionNode] = field(default_factory=set)

    def of_nodes(self, function: FunctionNode, nodes: list[ast.AST]) -> str | None:
        made = self._fresh(function)
        for node in own_nodes(*nodes):
            found = self._of_node(function, node, made)
            if found:
                return found
        return None

    def _of_node(self, function: FunctionNode, node: ast.AST, made: set[str]) -> str | None:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return None if _root(node) in made else f"line {node.lineno} writes {ast.unparse(node)}"
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)):
            return f"line {node.lineno} may write outside of the function"
        if isinstance(node, ast.Await) and not isinstance(node.value, ast.Call):
            return f"line {node.lineno} awaits what was started elsewhere"
        if isinstance(node, ast.withitem):
            entered = node.context_expr
            strange = not self._primitive(function, entered)
            return f"line {entered.lineno} enters {ast.unparse(entered)}" if strange else None
        if isinstance(node, ast.AsyncFor):
            return f"line {node.lineno} consumes {ast.unparse(node.iter)}"
        return self._of_call(function, node, made) if isinstance(node, ast.Call) else None

    def _of_call(self, function: FunctionNode, call: ast.Call, made: set[str]) -> str | None:
        if self._waits(function, call):
            return None
        target = call.func
        text = f"{ast.unparse(target)} (line {call.lineno})"
        if isinstance(target, ast.Name):
            name, local = target.id, target.id in self.module.locals_of(function)
            if not local and (name in PURE_CALLS | _VALUES or name.endswith(("Error", "Exception"))):
                return None
            if not local and name in self.module.classes:
                return self._of_construction(self.module.classes[name], text)
            named = [f for f in self.module.functions if f.name == name and self.module.owner_class(f) is None]
            return self._of_functions(call, named, text)
        if not isinstance(target, ast.Attribute):
            return f"what {text} does is not known"
        if isinstance(target.value, ast.Name) and target.value.id in _MODULES - self.module.locals_of(function):
            return None
        classes = self._classes(function, target.value)
        if classes:
            return self._of_functions(call, self._methods(classes, target.attr), text)
        awaited = isinstance(self.module.parents.get(call), ast.Await)
        if not awaited and (target.attr in PURE_METHODS or _root(target.value) in made):
            return None
        return f"what {text} does is not known"

    def _of_functions(self, call: ast.Call, found: list[FunctionNode], text: str) -> str | None:
        if not found:
            return f"what {text} does is not known"
        above = self.module.parents.get(call)
        if isinstance(self.module.parents.get(above) if isinstance(above, ast.Await) else above, ast.Expr):
            return f"{text} is called for its effects, its value is not used"
        for function in found:
            names = {getattr(d, "id", getattr(d, "attr", "")) for d in function.decorator_list}
            if names - _DECORATORS:
                return f"what {text} does is not known"
            if function not in self.asked:
                self.asked.add(function)
                inner = self.of_nodes(function, list(function.body))
                if inner:
                    return f"{text}: {inner}"
        return None

    def _of_construction(self, cls: ast.ClassDef, text: str) -> str | None:
        """A new object of the module's own class: its constructor may write to the object and nowhere else."""
        members = family(self.module, cls)
        known = {c.name for c in members} | {"object", "Exception", "Protocol", "ABC"}
        if any(getattr(b, "id", "") not in known for c in members for b in c.bases) or cls.keywords:
            return f"what {text} does is not known"
        makers = self._methods(members, "__init__") + self._methods(members, "__post_init__")
        for maker in [*makers, *self._methods(members, "__new__")]:
            if maker not in self.asked:
                self.asked.add(maker)
                inner = self.of_nodes(maker, list(maker.body))
                if inner:
                    return f"{text}: {inner}"
        return None

    def _fresh(self, function: FunctionNode) -> set[str]:
        """Local names that only ever hold objects which the function made itself."""
        fresh: set[str] = set()
        other: set[str] = set()
        for node in own_nodes(*function.body):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                (fresh if self._makes(node.value) else other).add(node.targets[0].id)
            elif isinstance(node, ast.Assign):
                other |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        arguments = [*function.args.posonlyargs, *function.args.args]
        if function.name in ("__init__", "__post_init__") and arguments:
            fresh.add(arguments[0].arg)
        return fresh - other

    def _makes(self, value: ast.expr) -> bool:
        if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)):
            return True
        named = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        return named and value.func.id in {*self.module.classes, "list", "dict", "set"}  # type: ignore[attr-defined]

    # -- what an expression is ---------------------------------------------------------------------------------------

    def _waits(self, function: FunctionNode, call: ast.Call) -> bool:
        """`asyncio.sleep(...)` in the module's own words, or `.wait()` on a primitive of asyncio."""
        if self._asyncio_name(call.func) == "sleep":
            return True
        target = call.func
        waits = isinstance(target, ast.Attribute) and target.attr in _WAITS
        return waits and self._primitive(function, target.value)  # type: ignore[attr-defined]

    def _asyncio_name(self, target: ast.expr) -> str | None:
        """The name in asyncio that the expression stands for, if the module imported it from there."""
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.ImportFrom) and node.module == "asyncio" and isinstance(target, ast.Name):
                for alias in node.names:
                    if (alias.asname or alias.name) == target.id:
                        return alias.name
            elif isinstance(node, ast.Import) and isinstance(target, ast.Attribute):
                base = target.value.id if isinstance(target.value, ast.Name) else None
                if any(a.name == "asyncio" and (a.asname or a.name) == base for a in node.names):
                    return target.attr
        return None

    def _primitive(self, function: FunctionNode, expression: ast.expr) -> bool:
        values = self._values(function, expression)
        return bool(values) and all(
            isinstance(v, ast.Call) and self._asyncio_name(v.func) in _PRIMITIVES for v in values
        )

    def _classes(self, function: FunctionNode, expression: ast.expr) -> list[ast.ClassDef]:
        """The module's classes that the expression can be an instance of; empty where that is not known."""
        held = receiver(self.module, function)
        if isinstance(expression, ast.Name) and held and expression.id == held[1]:
            return [held[0]]
        found: list[ast.ClassDef] = []
        for value in self._values(function, expression):
            name = value.func if isinstance(value, ast.Call) else value  # a constructor's call, or an annotation
            cls = self.module.classes.get(name.id) if isinstance(name, ast.Name) else None
            if cls is None:
                return []
            found.append(cls)
        return found

    def _values(self, function: FunctionNode, expression: ast.expr) -> list[ast.expr]:
        """What is assigned to the name or attribute anywhere in the module: calls, or the annotation of a parameter
        that is passed on. Empty where one of them is something else."""
        scope: ast.AST = self.module.tree
        if isinstance(expression, ast.Name):
            local = expression.id in self.module.locals_of(function)
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            noted = [a.annotation for a in arguments if a.arg == expression.id]
            if noted:
                return [noted[0]] if noted[0] is not None else []
            scope = function if local else scope
        elif not isinstance(expression, ast.Attribute):
            return []
        found: list[ast.expr] = []
        for node in ast.walk(scope):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            value = getattr(node, "value", None)
            for target in targets:
                if not _same(target, expression):
                    continue
                if isinstance(value, ast.Call):
                    found.append(value)
                    continue
                owner = self.module.enclosing_function(node)
                passed = self._values(owner, value) if owner is not None and isinstance(value, ast.Name) else []
                if not passed:
                    return []
                found += passed
        return found

    def _methods(self, classes: list[ast.ClassDef], name: str) -> list[FunctionNode]:
        """The methods so called in the classes, their bases and everything in the module that derives from them."""
        reach = [c for cls in classes for c in family(self.module, cls)]
        reach += [c for c in self.module.classes.values() if any(b in classes for b in family(self.module, c))]
        return [f for f in self.module.functions if f.name == name and self.module.owner_class(f) in reach]


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _same(target: ast.expr, expression: ast.expr) -> bool:
    if isinstance(expression, ast.Name):
        return isinstance(target, ast.Name) and target.id == expression.id
    assert isinstance(expression, ast.Attribute)
    return isinstance(target, ast.Attribute) and target.attr == expression.attr
