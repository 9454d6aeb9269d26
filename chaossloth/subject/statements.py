"""The statements of the tree transformation (expressions: `rewrite`).

Stores to names can only be recorded beside the store: a single name's value passes through a hook, other targets get
a recording statement after the store, or at the start of the block that the store opens.
"""

from __future__ import annotations

import ast

from chaossloth.subject.nodes import bound_names, captured_names, is_hook, last_name
from chaossloth.subject.recorder import READ, UPDATE
from chaossloth.subject.rewrite import ExpressionRewriter
from chaossloth.subject.scopes import suspends

__all__ = ["Rewriter"]

_MAKING_TASKS = frozenset({"create_task", "ensure_future", "gather", "shield", "run_coroutine_threadsafe"})


class Rewriter(ExpressionRewriter):
    """Rewrites the functions of one module in place."""

    # -- functions and classes

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        self._defaults(node.args, node.name)
        inside = self._inside(node, node.name)
        node.body = inside(lambda: self._function_body(node))
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def _function_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
        shared = self.scope.shared_variables()
        body = self._statements(node.body)
        if shared:
            start = 1 if ast.get_docstring(node, clean=False) is not None else 0
            first = body[min(start, len(body) - 1)]
            captured = self.at(ast.Tuple([self._plain_name(n, first) for n in shared], ast.Load()), first)
            arguments = (self.constant(".".join(self.qualified), first), self.constant(shared, first))
            body.insert(start, self.statement(self.hook("env", first, *arguments, self._capture(captured)), first))
        return body

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        node.bases = [self.visit(b) for b in node.bases]
        node.keywords = [self.visit(k) for k in node.keywords]
        before = self.scope, self.live, self.qualified
        nested = [*self.qualified, "<locals>"] if self.live else self.qualified
        self.scope, self.live, self.qualified = self.tree.of[node], False, [*nested, node.name]
        self.methods.append({n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)})
        try:
            node.body = self._statements(node.body)
        finally:
            self.scope, self.live, self.qualified = before
            self.methods.pop()
        return node

    # -- statements

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in body:
            visited = self.visit(statement)
            result.extend(visited if isinstance(visited, list) else [visited])
        return result

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            part = getattr(node, name, None)
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
                setattr(node, name, self._statements(part))
        for name, value in ast.iter_fields(node):
            if name in ("type_params", "annotation", "returns"):
                continue
            if isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list) and not (value and isinstance(value[0], ast.stmt)):
                value[:] = [self.visit(part) if isinstance(part, ast.AST) else part for part in value]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call):
            made = last_name(node.value.func) in _MAKING_TASKS
            node.value = self._call(node.value, awaited=not made)
        else:
            node.value = self.visit(node.value)
        return node

    def _tested(self, node: ast.If | ast.While | ast.Assert) -> ast.AST:
        node.test = self._truth(node.test)
        if isinstance(node, ast.Assert):
            node.msg = node.msg and self.visit(node.msg)
        else:
            node.body, node.orelse = self._statements(node.body), self._statements(node.orelse)
        return node

    visit_If = visit_While = visit_Assert = _tested

    def _after(self, node: ast.stmt, names: list[str]) -> ast.AST | list[ast.stmt]:
        extra = [s for name in names for s in self._record_name(name, node)] if self.live else []
        return [node, *extra] if extra else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        node.value = self.visit(node.value)
        single = len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        names = [] if single else bound_names(node.targets)
        if self.live:
            if any(isinstance(t, (ast.Tuple, ast.List)) for t in node.targets) and not isinstance(
                node.value, ast.Tuple
            ):
                node.value = self.read(node.value, "rk", "unpacking")
            if single:
                node.value = self._stored(node.targets[0], node.value)
            if any(isinstance(t, ast.Attribute) and t.attr == "__dict__" for t in node.targets):
                fresh = self.constant(is_hook(node.value, "new"), node.value)
                node.value = self.hook("sd", node.value, node.value, fresh)
        node.targets = [self.visit(t) for t in node.targets]
        return self._after(node, names)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self._stored(node.target, self.visit(node.value))
            node.target = self.visit(node.target)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        if not self.live:
            return self.generic_visit(node)
        waits = suspends([node.value])
        number = self._is_scalar(node.value)
        plain = isinstance(node.target, ast.Name) and number and self._is_number(node.target.id)
        value: ast.expr = self.visit(node.value)
        if isinstance(node.target, ast.Name):
            return self._augmented_name(node, node.target, value, plain, waits)
        target = node.target
        op = self.constant(type(node.op).__name__, target)
        extra = (op, self.at(ast.Constant(True), target)) if waits else (op,)
        target.value = self.visit(target.value)
        if isinstance(target, ast.Attribute):
            target.value = self._attribute("ua", target, *extra)
        else:
            target.slice = self.visit(target.slice)
            self._item("ui", target, *extra)
        if waits:
            hook = "uwa" if isinstance(target, ast.Attribute) else "uwi"
            value = self.hook(hook, value, self.hook("pop", value), value, op, self.site(target, "augmented"))
        node.value = value if number else self.read(value, "rv", "operand")
        return node

    def _augmented_name(
        self, node: ast.AugAssign, target: ast.Name, value: ast.expr, number: bool, waits: bool
    ) -> ast.AST | list[ast.stmt]:
        if not number:
            op = self.constant(type(node.op).__name__, value)
            value = self.hook("ai", value, value, self._copy(target), op, self.site(node, "augmented"))
        if waits:
            node.value = self._stored(target, value)
            return [*self._record_name(target.id, node, READ), node]
        node.value = value
        return [*self._record_name(target.id, node, UPDATE), node]

    def visit_Delete(self, node: ast.Delete) -> ast.AST | list[ast.stmt]:
        names = bound_names(node.targets) if self.live else []
        node.targets = [self.visit(t) for t in node.targets]
        before = [s for name in names for s in self._record_name(name, node)]
        return [*before, node] if before else node

    def _loop(self, node: ast.For | ast.AsyncFor) -> ast.AST:
        waits, called = suspends(node.body), isinstance(node.iter, ast.Call)
        self._consume([node.iter])
        node.iter = self.visit(node.iter)
        if self.live and isinstance(node, ast.For):
            node.iter = self.read(node.iter, "it" if waits else "rk", "iteration")
        elif self.live:
            node.iter = self._asynchronously(node.iter, called)
        names = bound_names([node.target])
        node.target = self.visit(node.target)
        node.body = [*self._records(names, node), *self._statements(node.body)]
        node.orelse = self._statements(node.orelse)
        return node

    visit_For = visit_AsyncFor = _loop

    def _records(self, names: list[str], old: ast.AST) -> list[ast.stmt]:
        return [s for name in names for s in self._record_name(name, old)] if self.live else []

    def _with(self, node: ast.With | ast.AsyncWith) -> ast.AST:
        names = bound_names([item.optional_vars for item in node.items if item.optional_vars is not None])
        for item in node.items:
            visited: ast.expr = self.visit(item.context_expr)
            item.context_expr = self.read(visited, "cm", "with") if self.live else visited
            item.optional_vars = item.optional_vars and self.visit(item.optional_vars)
        node.body = [*self._records(names, node), *self._statements(node.body)]
        return node

    visit_With = visit_AsyncWith = _with

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.type = node.type and self.visit(node.type)
        node.body = [*self._records([node.name] if node.name else [], node), *self._statements(node.body)]
        return node

    def _import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        names = [alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name != "*"]
        return self._after(node, names)

    visit_Import = visit_ImportFrom = _import

    def visit_TypeAlias(self, node: ast.AST) -> ast.AST:
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.visit(node.subject)
        if self.live:
            looked = {a for part in ast.walk(node) if isinstance(part, ast.MatchClass) for a in part.kwd_attrs}
            names = self.constant(tuple(sorted(self._mangled(a) for a in looked)), node.subject)
            node.subject = self.hook("mt", node.subject, node.subject, names, self.site(node, "match"))
        for case in node.cases:
            captured = captured_names(case.pattern)
            case.guard = case.guard and self._truth(case.guard)
            case.body = [*self._records(captured, node), *self._statements(case.body)]
        return node
