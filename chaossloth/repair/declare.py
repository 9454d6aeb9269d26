"""Creating a lock in a class, a closure or a module: text and tree side by side.

A class is not one thing: it may have an `__init__` (with early returns), inherit one, be a dataclass (whose generated
`__init__` must create the lock), have `__slots__`, or be of a kind whose construction cannot be extended from outside
(named tuples, enums, attrs and pydantic models); the last is refused by name.
Source: `dataclasses` docs (`field`), data model 3.3.2.4 (`__slots__`), asyncio-sync docs (a lock may be created
outside of a running loop since Python 3.10).
"""

from __future__ import annotations

import ast

from chaossloth.repair.render import Draft, Keep, Line
from chaossloth.repair.source import Block, FunctionNode, ModuleSource, Refused, own_nodes

__all__ = ["declare_closure", "declare_in_class", "declare_instance", "declare_module", "lock_names"]

_CLOSED_BASES = frozenset(
    {"NamedTuple", "TypedDict", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "Protocol"}
    | {"BaseModel", "Struct", "Model", "SQLModel"}
)
_CLOSED_DECORATORS = frozenset({"attrs", "attr", "define", "frozen", "mutable", "s"})


def lock_names(module: ModuleSource) -> set[str]:
    """Names and attributes that are bound to a new asyncio.Lock anywhere in the module."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _makes_lock(module, node.value):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    found.add(target.id if isinstance(target, ast.Name) else target.attr)
    return found


def _makes_lock(module: ModuleSource, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    factories = [k.value for k in value.keywords if k.arg == "default_factory"]
    constructor = _imported(module, "asyncio", "Lock")
    return constructor is not None and any(ast.unparse(f) == constructor for f in (value.func, *factories))


def _imported(module: ModuleSource, package: str, name: str) -> str | None:
    """How module-level code says `package.name`, by the module's own imports; None when it cannot."""
    whole = None
    for statement in module.tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == package or (alias.name.startswith(package + ".") and alias.asname is None):
                    whole = f"{alias.asname or package}.{name}"
        elif isinstance(statement, ast.ImportFrom) and statement.module == package and not statement.level:
            for alias in statement.names:
                if alias.name == name:
                    return alias.asname or name
    return whole


def _lock_constructor(draft: Draft) -> str:
    """The expression that names asyncio.Lock; adds `import asyncio` where the module has no import of it."""
    module = draft.module
    present = _imported(module, "asyncio", "Lock")
    if present is not None:
        return present
    if "asyncio" in module.globals:
        raise Refused("the module uses the name `asyncio` for something else")
    body = module.tree.body
    start = 1 if ast.get_docstring(module.tree, clean=False) is not None else 0
    while (
        start < len(body)
        and isinstance(body[start], ast.ImportFrom)
        and getattr(body[start], "module", "") == "__future__"
    ):
        start += 1
    anchor = next((s for s in body[start:] if isinstance(s, (ast.Import, ast.ImportFrom))), body[start])
    lines = ["import asyncio"] if isinstance(anchor, (ast.Import, ast.ImportFrom)) else ["import asyncio", ""]
    draft.insert_before(anchor, lines)
    new = ast.Import(names=[ast.alias(name="asyncio", asname=None)])
    draft.replace_run(Block(module.tree, "body"), anchor, anchor, [new, draft.copy(anchor)])
    return "asyncio.Lock"


def declare_instance(draft: Draft, cls: ast.ClassDef, name: str) -> None:
    """Every instance of the class gets its own lock under `name`. Raises Refused for classes that cannot."""
    _check_open(cls)
    constructor = _lock_constructor(draft)
    _extend_slots(draft, cls, name)
    init = next((s for s in cls.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
    if init is not None:
        _extend_init(draft, init, name, constructor)
    elif any(_is_dataclass(d) for d in cls.decorator_list):
        _add_field(draft, cls, name, constructor)
    else:
        _add_init(draft, cls, name, constructor)


def _check_open(cls: ast.ClassDef) -> None:
    bases = {getattr(b, "id", getattr(b, "attr", "")) for b in cls.bases}
    decorators = {
        n.id if isinstance(n, ast.Name) else n.attr
        for d in cls.decorator_list
        for n in ast.walk(d.func if isinstance(d, ast.Call) else d)
        if isinstance(n, (ast.Name, ast.Attribute))
    }
    closed = sorted(bases & _CLOSED_BASES) + sorted(decorators & _CLOSED_DECORATORS)
    if closed:
        raise Refused(f"class {cls.name} is built by {closed[0]}: its instances cannot be given a lock")
    if any(isinstance(s, ast.FunctionDef) and s.name == "__new__" for s in cls.body):
        raise Refused(f"class {cls.name} has its own __new__")


def _is_dataclass(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(function, "id", getattr(function, "attr", "")) == "dataclass"


def _extend_init(draft: Draft, init: ast.FunctionDef, name: str, constructor: str) -> None:
    arguments = [*init.args.posonlyargs, *init.args.args]
    if not arguments:
        raise Refused("__init__ has no named first parameter")
    text = f"{arguments[0].arg}.{name} = {constructor}()"
    block = Block(init, "body")
    body = block.statements
    leaves_early = any(isinstance(n, (ast.Return, ast.Raise)) for n in own_nodes(*body))
    position = _after_super(init) if leaves_early else len(body) - 1
    new = ast.parse(text).body[0]
    if position < 0:
        draft.rewrite(block, 0, 0, [Line(text), Keep(body[0])])
        draft.replace_run(block, body[0], body[0], [new, draft.copy(body[0])])
    else:
        anchor = body[position]
        draft.rewrite(block, position, position, [Keep(anchor), Line(text)])
        draft.replace_run(block, anchor, anchor, [draft.copy(anchor), new])


def _after_super(init: ast.FunctionDef) -> int:
    """Index of the statement to put the lock behind when __init__ may leave early: super().__init__, the docstring."""
    for position, statement in enumerate(init.body):
        if isinstance(statement, ast.Expr) and "super" in ast.dump(statement):
            return position
    return 0 if ast.get_docstring(init, clean=False) is not None else -1


def _add_init(draft: Draft, cls: ast.ClassDef, name: str, constructor: str) -> None:
    """Before the first method: it exists, since the region stands in one (or in a method of a subclass)."""
    inherits = any(getattr(b, "id", "") != "object" and not isinstance(b, ast.Subscript) for b in cls.bases)
    head = "def __init__(self, *args, **kwargs):" if inherits else "def __init__(self):"
    body = ["super().__init__(*args, **kwargs)"] if inherits else []
    body.append(f"self.{name} = {constructor}()")
    anchor = next((s for s in cls.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    if anchor is None:
        raise Refused(f"class {cls.name} has no method to put __init__ before")
    unit = draft.module.unit(Block(cls, "body"))
    draft.insert_before(anchor, [head, *(unit + line for line in body), ""], above_comments=True)
    new = ast.parse("\n".join([head, *("    " + line for line in body)])).body[0]
    draft.replace_run(Block(cls, "body"), anchor, anchor, [new, draft.copy(anchor)])


def _add_field(draft: Draft, cls: ast.ClassDef, name: str, constructor: str) -> None:
    function = _field_function(draft)
    options = f"default_factory={constructor}, init=False, repr=False, compare=False"
    _add_to_class_body(draft, cls, f"{name}: {constructor} = {function}({options})")


def _field_function(draft: Draft) -> str:
    present = _imported(draft.module, "dataclasses", "field")
    if present is not None:
        return present
    for statement in draft.module.tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "dataclasses" and not statement.level:
            at = draft.module.end(statement.names[-1])
            draft.edit(at, at, ", field")
            new = draft.copy(statement)
            assert isinstance(new, ast.ImportFrom)
            new.names.append(ast.alias(name="field", asname=None))
            return "field"
    raise Refused("the module's import of dataclasses was not found")


def declare_in_class(draft: Draft, cls: ast.ClassDef, name: str) -> None:
    """One lock for all instances, as a class attribute."""
    _add_to_class_body(draft, cls, f"{name} = {_lock_constructor(draft)}()")


def _add_to_class_body(draft: Draft, cls: ast.ClassDef, text: str) -> None:
    """Behind the last assignment that stands before the first method, else before the first method."""
    block = Block(cls, "body")
    methods = [i for i, s in enumerate(cls.body) if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))]
    until = methods[0] if methods else len(cls.body)
    fields = [s for s in cls.body[:until] if isinstance(s, (ast.Assign, ast.AnnAssign))]
    new = ast.parse(text).body[0]
    if fields:
        draft.insert_after(fields[-1], [text])
        draft.replace_run(block, fields[-1], fields[-1], [draft.copy(fields[-1]), new])
    elif methods:
        anchor = cls.body[until]
        draft.insert_before(anchor, [text, ""], above_comments=True)
        draft.replace_run(block, anchor, anchor, [new, draft.copy(anchor)])
    else:
        raise Refused(f"no place for a new attribute in class {cls.name}")


def _extend_slots(draft: Draft, cls: ast.ClassDef, name: str) -> None:
    for statement in cls.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "__slots__" for t in targets):
            assert isinstance(statement, ast.Assign)
            _extend_slot_value(draft, statement.value, name)


def _extend_slot_value(draft: Draft, value: ast.expr, name: str) -> None:
    module = draft.module
    new: ast.expr
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)) and value.elts:
        last = value.elts[-1]
        quote = module.segment(last)[-1]
        draft.edit(module.end(last), module.end(last), f", {quote}{name}{quote}")
        copied = draft.copy(value)
        assert isinstance(copied, (ast.Tuple, ast.List, ast.Set))
        copied.elts.append(ast.Constant(value=name))
        return
    if isinstance(value, (ast.Tuple, ast.List)):
        text = f'("{name}",)' if isinstance(value, ast.Tuple) else f'["{name}"]'
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        text = f'({module.segment(value)}, "{name}")'
    else:
        raise Refused("__slots__ is computed")
    draft.edit(module.start(value), module.end(value), text)
    new = ast.parse(text, mode="eval").body
    draft.replace_expression(value, new)


def declare_closure(draft: Draft, function: FunctionNode, name: str, variable: str) -> None:
    """A local lock of the enclosing function, behind the statement that creates the shared variable."""
    text = f"{name} = {_lock_constructor(draft)}()"
    _insert_statement(draft, Block(function, "body"), _binding(function.body, variable), function.body, text)


def declare_module(draft: Draft, top: ast.AST, name: str, variable: str) -> None:
    """A module-level lock, behind the shared global's assignment, else before the statement that uses it."""
    text = f"{name} = {_lock_constructor(draft)}()"
    body = draft.module.tree.body
    position = next(i for i, s in enumerate(body) if s is top)
    _insert_statement(
        draft, Block(draft.module.tree, "body"), _binding(body[:position], variable), body[position:], text
    )


def _insert_statement(draft: Draft, block: Block, behind: ast.stmt | None, others: list[ast.stmt], text: str) -> None:
    new = ast.parse(text).body[0]
    if behind is not None:
        draft.insert_after(behind, [text])
        draft.replace_run(block, behind, behind, [draft.copy(behind), new])
        return
    anchor = next(s for s in others if not _is_preamble(s))
    draft.insert_before(anchor, [text, *([""] * 2 if isinstance(block.owner, ast.Module) else [])], above_comments=True)
    draft.replace_run(block, anchor, anchor, [new, draft.copy(anchor)])


def _binding(body: list[ast.stmt], variable: str) -> ast.stmt | None:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        if any(isinstance(n, ast.Name) and n.id == variable for t in targets for n in ast.walk(t)):
            return statement
    return None


def _is_preamble(statement: ast.stmt) -> bool:
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return docstring or isinstance(statement, (ast.Global, ast.Nonlocal))
