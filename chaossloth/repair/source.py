"""One module's text beside its tree: where every statement begins and ends, and in which block it stands.

The hard part is that three coordinate systems meet. `ast` counts UTF-8 bytes per line, `tokenize` counts characters
per line, and edits need offsets into the whole text. Lines end where the tokenizer says they do (LF, CRLF, CR), not
where `str.splitlines` does (it also splits at form feeds and U+2028). A byte order mark is no part of the tree.
Source: Python language reference, "Lexical analysis" (2.1.2 physical lines, 2.1.8 indentation) and `ast` docs.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Block", "FunctionNode", "ModuleSource", "Refused", "TextMap", "is_function", "own_nodes"]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCK_FIELDS = ("body", "orelse", "finalbody")
_REST_OF_LINE = re.compile(r"[ \t\f]*;?[ \t\f]*(#[^\r\n]*)?")
_LINE = re.compile(r"[^\r\n]*(\r\n|\n|\r|\Z)")


class Refused(Exception):
    """A site that an operator will not touch; the message says why and is kept in the proposal."""


def is_function(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def own_nodes(*roots: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs in the roots' own scope: bodies of nested functions, lambdas and classes are left out.

    A nested function's decorators and defaults do run, and are included.
    """
    stack: list[ast.AST] = list(reversed(roots))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            stack.extend([*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)])
        elif isinstance(node, ast.ClassDef):
            stack.extend([*node.decorator_list, *node.bases, *node.keywords])
        elif isinstance(node, ast.Lambda):
            stack.extend([*node.args.defaults, *(d for d in node.args.kw_defaults if d)])
        else:
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


@dataclass(frozen=True, slots=True)
class Block:
    """A list of statements in the tree, named by its owner and field ("body", "orelse", "finalbody")."""

    owner: ast.AST
    field: str

    @property
    def statements(self) -> list[ast.stmt]:
        return list(getattr(self.owner, self.field))


class TextMap:
    """A text and the positions in it: lines, offsets of `ast` positions, segments. Needs no tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.bom = 1 if text.startswith("\ufeff") else 0
        self.line_spans = _line_spans(text, self.bom)

    @cached_property
    def newline(self) -> str:
        """The line ending in use: that of the first line; LF for a text of one line."""
        first = _LINE.match(self.text)
        return (first.group(1) if first else "") or "\n"

    def line_text(self, line: int) -> str:
        """The characters of a 1-based line, without its line ending."""
        start, end, _ = self.line_spans[line - 1]
        return self.text[start:end]

    def offset(self, line: int, byte_column: int) -> int:
        """Character offset into the text of an `ast` position."""
        start, end, _ = self.line_spans[line - 1]
        head = self.text[start:end]
        if head.isascii():
            return start + byte_column
        return start + len(head.encode("utf-8")[:byte_column].decode("utf-8"))

    def start(self, node: ast.AST) -> int:
        """Where the node's text begins; for a decorated definition, the `@` of its first decorator."""
        decorators = getattr(node, "decorator_list", None)
        if not decorators:
            return self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return self.text.rindex("@", 0, self.offset(decorators[0].lineno, decorators[0].col_offset) + 1)

    def end(self, node: ast.AST) -> int:
        return self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def segment(self, node: ast.AST) -> str:
        return self.text[self.start(node) : self.end(node)]

    def line_of(self, offset: int) -> int:
        """The 1-based line that holds the offset."""
        low, high = 0, len(self.line_spans)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.line_spans[middle][0] <= offset else (low, middle)
        return low + 1


class ModuleSource(TextMap):
    """The text of one module, its tree, and what follows from them, computed once and shared by all operators.

    Raises SyntaxError when the text does not parse.
    """

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path
        self.tree = ast.parse(text[self.bom :])
        self.digests: dict[ast.stmt, str] = {}

    # -- lines -----------------------------------------------------------------------------------------------------

    def starts_line(self, node: ast.AST) -> bool:
        """True when only white space stands before the node on its line (a continuation line does not count)."""
        begin = self.start(node)
        line = self.line_of(begin)
        if self.text[self.line_spans[line - 1][0] : begin].strip(" \t\f"):
            return False
        return line == 1 or not self.line_text(line - 1).endswith("\\") or self.line_text(line - 1).lstrip()[:1] == "#"

    def line_tail_end(self, node: ast.AST) -> int | None:
        """End of the node's last line (its comment included), or None when another statement follows on it."""
        end = self.end(node)
        _, line_end, _ = self.line_spans[self.line_of(end) - 1]
        match = _REST_OF_LINE.match(self.text, end, line_end)
        return line_end if match and match.end() == line_end else None

    def indentation(self, line: int) -> str:
        """The white space that begins a line; a form feed resets the column, so only what follows it counts."""
        text = self.line_text(line)
        return text[: len(text) - len(text.lstrip(" \t\f"))].rpartition("\f")[2]

    @cached_property
    def protected_lines(self) -> frozenset[int]:
        """Lines that begin inside a string literal: white space put there would change the string."""
        normal = "".join(self.text[a:b] + "\n" for a, b, _ in self.line_spans)
        starts = {getattr(tokenize, f"{kind}STRING_START", None) for kind in "FT"} - {None}
        ends = {getattr(tokenize, f"{kind}STRING_END", None) for kind in "FT"} - {None}
        found: set[int] = set()
        open_at: list[int] = []
        for token in tokenize.generate_tokens(io.StringIO(normal).readline):
            if token.type == tokenize.STRING:
                found.update(range(token.start[0] + 1, token.end[0] + 1))
            elif token.type in starts:
                open_at.append(token.start[0])
            elif token.type in ends:
                found.update(range(open_at.pop() + 1, token.end[0] + 1))
        return frozenset(found)

    # -- tree ------------------------------------------------------------------------------------------------------

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parent, grandparent, ... up to the module."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def block_of(self, statement: ast.stmt) -> Block:
        owner = self.parents[statement]
        for field in _BLOCK_FIELDS:
            if statement in (getattr(owner, field, None) or ()):
                return Block(owner, field)
        raise Refused("statement stands in no block")

    def blocks(self, root: ast.AST) -> Iterator[Block]:
        """Every block below (and of) root, outermost first; nested functions and classes are left out."""
        for field in _BLOCK_FIELDS:
            statements = getattr(root, field, None)
            if not isinstance(statements, list) or not statements:
                continue
            yield Block(root, field)
            for statement in statements:
                if not is_function(statement) and not isinstance(statement, ast.ClassDef):
                    yield from self.blocks(statement)
        for inner in (*getattr(root, "handlers", ()), *getattr(root, "cases", ())):
            yield from self.blocks(inner)

    @cached_property
    def functions(self) -> list[FunctionNode]:
        return [n for n in ast.walk(self.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Class by simple name; of several with one name the first in the tree's order."""
        found: dict[str, ast.ClassDef] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, node)
        return found

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Every name, attribute, argument, definition and string constant that looks like one: what is not free."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            for field in ("id", "attr", "arg", "name", "asname"):
                if isinstance(value := getattr(node, field, None), str):
                    found.add(value)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
        return frozenset(found)

    def fresh_name(self, wanted: str) -> str:
        """`wanted`, or `wanted_2`, ... such that the module uses it nowhere."""
        name, number = wanted, 1
        while name in self.identifiers:
            number += 1
            name = f"{wanted}_{number}"
        return name

    @cached_property
    def globals(self) -> frozenset[str]:
        """Names bound at module level, also inside its `if`, `try` and `with` statements."""
        return _bound_in(self.tree.body)

    def locals_of(self, function: FunctionNode) -> frozenset[str]:
        """Parameters and names that the function binds, without those it declares global or nonlocal."""
        arguments = function.args
        names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        names += [a for a in (arguments.vararg, arguments.kwarg) if a]
        foreign = {n for s in own_nodes(*function.body) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
        return frozenset({a.arg for a in names} | (_bound_in(function.body) - foreign))

    def function_at(self, line: int) -> FunctionNode | None:
        """The innermost function whose body or header holds the line."""
        holding = [f for f in self.functions if f.lineno <= line <= (f.end_lineno or f.lineno)]
        return max(holding, key=lambda f: f.lineno, default=None)

    def qualified_name(self, node: ast.AST) -> str:
        """`Class.method`, `outer.<locals>.inner`: the name a traceback or `__qualname__` shows."""
        parts = [getattr(node, "name", "")]
        for above in self.ancestors(node):
            if is_function(above):
                parts += ["<locals>", above.name]  # type: ignore[attr-defined]
            elif isinstance(above, ast.ClassDef):
                parts.append(above.name)
        return ".".join(reversed(parts))

    def owner_class(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose body holds this function directly."""
        above = self.parents.get(function)
        return above if isinstance(above, ast.ClassDef) else None

    def enclosing_function(self, node: ast.AST) -> FunctionNode | None:
        for above in self.ancestors(node):
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return above
        return None

    def block_indent(self, block: Block) -> str:
        """The indentation of the block's statements, also where the block stands on its owner's line."""
        first = block.statements[0]
        if self.starts_line(first):
            return self.indentation(self.line_of(self.start(first)))
        if isinstance(block.owner, ast.Module):
            return ""
        return self._owner_indent(block.owner) + self.file_unit

    def unit(self, block: Block) -> str:
        """One level of indentation in the style of the block's surroundings."""
        if isinstance(block.owner, ast.Module):
            return self.file_unit
        outer, inner = self._owner_indent(block.owner), self.block_indent(block)
        return inner[len(outer) :] if inner.startswith(outer) and inner != outer else self.file_unit

    @cached_property
    def file_unit(self) -> str:
        """The first indented block's step; four spaces where there is none."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and self.starts_line(body[0]):
                outer, inner = self._owner_indent(node), self.indentation(body[0].lineno)
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer) :]
        return "    "

    def _owner_indent(self, owner: ast.AST) -> str:
        line = owner.pattern.lineno if isinstance(owner, ast.match_case) else owner.lineno  # type: ignore[attr-defined]
        return self.indentation(line)


def _line_spans(text: str, bom: int) -> list[tuple[int, int, int]]:
    """(start, end without line ending, end with line ending) of every line; at least one line."""
    spans: list[tuple[int, int, int]] = []
    position = bom
    while position < len(text) or not spans:
        match = _LINE.match(text, position)
        assert match is not None  # the pattern matches the empty text at the end
        spans.append((position, match.start(1), match.end()))
        position = match.end()
        if match.end() == match.start(1):
            break
    return spans


def _bound_in(body: list[ast.stmt]) -> frozenset[str]:
    found: set[str] = set()
    for node in own_nodes(*body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return frozenset(found)
