"""Text edits by position, and the proof that they say what the transformed tree says.

An operator describes its change twice: to the text, as a *plan* over a run of statements (`Keep` a statement, insert
a `Line`, open a `Suite`), and to the tree, as node surgery on a private copy (`Draft.replace_run`, `Draft.copy`). The
plan copies the source of kept statements verbatim, so comments, quotes, blank lines and line endings survive; where a
statement moves one level in, white space is added at line starts only, never inside a string literal. `Draft.finish`
parses the new text and compares it with the new tree: a difference discards the candidate.

The comparison dumps only the top-level statements and class members that the tree surgery touched. The others must have
exactly the same text as before; the parser is deterministic, so the same text has the same tree. This keeps a candidate
for one class of a 3,000 line module affordable (dumping such a module costs 0.1 s, a search has dozens of candidates).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from chaossloth.repair.diffs import changed_lines, unified_diff
from chaossloth.repair.source import Block, ModuleSource, Refused, TextMap

__all__ = ["Draft", "Edit", "Finished", "Item", "Keep", "Line", "Suite", "tree_hash", "unified_diff"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace text[start:end]; start == end inserts. Offsets are characters of the original text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Keep:
    """An original statement, copied verbatim but for `subs` (edits inside the statement)."""

    statement: ast.stmt
    subs: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A new simple statement. Its further lines, if any, stand inside brackets or strings and stay as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Suite:
    """A new compound statement: a header that ends with a colon, and what stands in it."""

    header: str
    items: tuple[Item, ...]


Item = Keep | Line | Suite


@dataclass(frozen=True, slots=True)
class Finished:
    """A verified draft: the new text and the hash of its tree (`tree_hash`)."""

    source: str
    tree_hash: str
    edit_size: int


@dataclass
class Draft:
    """One candidate in the making: edits to the text and, independently, a transformed tree."""

    module: ModuleSource
    edits: list[Edit] = field(default_factory=list)
    _copies: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _body: list[ast.stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._body = list(self.module.tree.body)

    # -- tree ------------------------------------------------------------------------------------------------------

    @property
    def tree(self) -> ast.Module:
        """The transformed tree; untouched top-level statements are the original nodes."""
        return ast.Module(body=self._body, type_ignores=[])

    def copy(self, node: ast.AST) -> ast.AST:
        """The counterpart of an original node in the transformed tree: free to be changed, lists included.

        Only the path from the module to the node is copied; everything beside it is shared with the original tree, and
        never changed. A node must be copied before `replace_run` moves it elsewhere.
        """
        if node not in self._copies:
            twin = _shallow(node)
            above = self.module.parents[node]
            if isinstance(above, ast.Module):
                self._body[next(i for i, s in enumerate(self._body) if s is node)] = twin  # type: ignore[call-overload]
            else:
                _substitute(self.copy(above), node, twin)
            self._copies[node] = twin
        return self._copies[node]

    def replace_run(self, block: Block, first: ast.stmt, last: ast.stmt, nodes: Sequence[ast.AST]) -> None:
        """Put `nodes` where the copies of the statements first..last stand (nodes may contain those copies)."""
        if isinstance(block.owner, ast.Module):
            start, end = self.copy(first), self.copy(last)
            statements = self._body
        else:
            statements = getattr(self.copy(block.owner), block.field)
            start, end = self.copy(first), self.copy(last)
        low = next(i for i, s in enumerate(statements) if s is start)
        high = next(i for i, s in enumerate(statements) if s is end)
        statements[low : high + 1] = nodes  # type: ignore[assignment]

    def replace_expression(self, node: ast.expr, new: ast.expr) -> None:
        """Put `new` where the copy of `node` stands."""
        _substitute(self.copy(self.module.parents[node]), self.copy(node), new)

    # -- text ------------------------------------------------------------------------------------------------------

    def edit(self, start: int, end: int, text: str) -> None:
        self.edits.append(Edit(start, end, text))

    def rewrite(self, block: Block, first: int, last: int, items: Sequence[Item]) -> None:
        """Replace the text of statements first..last (indices into the block) by what the plan says."""
        self.edits.append(_rewrite(self.module, block, first, last, list(items)))

    def insert_before(self, statement: ast.stmt, lines: Sequence[str], above_comments: bool = False) -> None:
        """Insert whole lines above a statement and its decorators (and above the comments that stand on it)."""
        module = self.module
        if not module.starts_line(statement):
            raise Refused("no place for a new line: the statement shares its line")
        indent = module.block_indent(module.block_of(statement))
        line = _comment_top(module, statement) if above_comments else module.line_of(module.start(statement))
        at = module.line_spans[line - 1][0]
        self.edit(at, at, "".join((indent + text if text else "") + module.newline for text in lines))

    def insert_after(self, statement: ast.stmt, lines: Sequence[str]) -> None:
        """Insert whole lines below a statement (and below the comment on its last line)."""
        module = self.module
        if module.line_tail_end(statement) is None or not module.starts_line(statement):
            raise Refused("no place for a new line: the statement shares its line")
        indent = module.block_indent(module.block_of(statement))
        _, end, after = module.line_spans[module.line_of(module.end(statement)) - 1]
        text = module.newline.join(indent + line for line in lines)
        self.edit(after, after, text + module.newline if after > end else module.newline + text)

    # -- the invariant ---------------------------------------------------------------------------------------------

    def finish(self) -> Finished:
        """The new source; raises Refused when text and tree disagree (or edits overlap, or nothing changed)."""
        source = _apply(self.module.text, self.edits)
        try:
            parsed = ast.parse(source.removeprefix("\ufeff"))
        except (SyntaxError, ValueError) as error:
            raise Refused(f"the edited text does not parse: {error}") from None
        wanted = self._body
        if len(parsed.body) != len(wanted):
            raise Refused("the edited text has other top-level statements than the transformed tree")
        renewed = TextMap(source)
        pairs = zip(parsed.body, wanted, strict=True)
        digests = [self._agree(renewed, new, tree) for new, tree in pairs]
        if source == self.module.text:
            raise Refused("nothing changes")
        size = changed_lines(self.module.text, source)
        return Finished(source, _digest("\n".join(digests)), size)

    def _agree(self, renewed: TextMap, new: ast.stmt, tree: ast.stmt) -> str:
        """The digest of a statement of the new text; raises Refused when it is not the transformed tree's."""
        module = self.module
        if tree in module.parents:
            if renewed.segment(new) != module.segment(tree):
                raise Refused("the edit reached text outside of its own statement")
            if tree not in module.digests:
                module.digests[tree] = _statement_digest(tree)
            return module.digests[tree]
        if isinstance(new, ast.ClassDef) and isinstance(tree, ast.ClassDef) and len(new.body) == len(tree.body):
            if _class_header(new) != _class_header(tree):
                raise Refused("the edited text parses to another class header than the transformed one")
            members = [self._agree(renewed, a, b) for a, b in zip(new.body, tree.body, strict=True)]
            return _digest("\n".join([_class_header(new), *members]))
        dumped = ast.dump(new)
        if dumped != ast.dump(tree):
            raise Refused("the edited text parses to another tree than the transformed one")
        return _digest(dumped)


def tree_hash(source: str) -> str:
    """Hash of a module's tree (positions left out); equal for texts that differ in layout and comments only."""
    tree = ast.parse(source.removeprefix("\ufeff"))
    return _digest("\n".join(_statement_digest(statement) for statement in tree.body))


def _statement_digest(node: ast.stmt) -> str:
    """Of a class, its header and the digests of its members, so that unchanged members need not be dumped again."""
    if isinstance(node, ast.ClassDef):
        return _digest("\n".join([_class_header(node), *map(_statement_digest, node.body)]))
    return _digest(ast.dump(node))


def _class_header(node: ast.ClassDef) -> str:
    bare = _shallow(node)
    bare.body = []  # type: ignore[attr-defined]
    return ast.dump(bare)


def _shallow(node: ast.AST) -> ast.AST:
    return type(node)(**{k: list(v) if isinstance(v, list) else v for k, v in node.__dict__.items()})


def _substitute(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    """Put `new` where `old` stands in a node that may be changed."""
    for name, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, name, new)
            return
        if isinstance(value, list) and any(v is old for v in value):
            setattr(parent, name, [new if v is old else v for v in value])
            return
    raise Refused("a node is not where it was")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _apply(text: str, edits: Sequence[Edit]) -> str:
    """All edits at once. At one place, insertions come first, in the order in which they were made."""
    pieces: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < position:
            raise Refused("two edits overlap")
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


def _rewrite(module: ModuleSource, block: Block, first: int, last: int, items: list[Item]) -> Edit:
    statements = block.statements
    if module.text.startswith("elif", module.start(statements[0])):
        raise Refused("the statement is an `elif`")
    if not module.starts_line(statements[0]) and not isinstance(block.owner, ast.Module):
        # `if x: a; b` - the whole suite leaves its header's line, or the remaining half would end up outside of it
        items = [*map(Keep, statements[:first]), *items, *map(Keep, statements[last + 1 :])]
        first, last = 0, len(statements) - 1
    printer = _Printer(module, block, first, last, items)
    start, prefix = _begin(module, statements[first], printer.claimed_line)
    end, shared = _finish(module, statements, last)
    suffix = module.newline + module.block_indent(block) if shared else ""
    body = module.newline.join(printer.emit(item, module.block_indent(block)) for item in items)
    return Edit(start, end, prefix + body + suffix)


def _begin(module: ModuleSource, statement: ast.stmt, claimed_line: int | None) -> tuple[int, str]:
    begin = module.start(statement)
    if module.starts_line(statement):
        line = claimed_line or module.line_of(begin)
        text = module.line_text(line)
        blank = text[: len(text) - len(text.lstrip(" \t\f"))]
        return module.line_spans[line - 1][0] + len(blank) - len(module.indentation(line)), ""
    line_start = module.line_spans[module.line_of(begin) - 1][0]
    head = module.text[line_start:begin].rstrip(" \t\f")
    if not head:
        raise Refused("the statement's line continues another one")
    head = head[:-1].rstrip(" \t\f") if head.endswith(";") else head
    return line_start + len(head), module.newline


def _finish(module: ModuleSource, statements: list[ast.stmt], last: int) -> tuple[int, bool]:
    tail = module.line_tail_end(statements[last])
    if tail is not None:
        return tail, False
    if last + 1 == len(statements) or module.starts_line(statements[last + 1]):
        raise Refused("the end of the statement's line cannot be told")
    return module.start(statements[last + 1]), True


def _comment_top(module: ModuleSource, statement: ast.stmt) -> int:
    """The first of the comment lines that stand directly on the statement; its own line where there are none."""
    line = module.line_of(module.start(statement))
    indent = module.indentation(line)
    while line > 1 and line not in module.protected_lines:
        above = module.line_text(line - 1)
        if (
            not above.lstrip().startswith("#")
            or module.indentation(line - 1) != indent
            or line == 2
            and "!" in above[:2]
        ):
            break
        line -= 1
    return line


class _Printer:
    """Emits a plan over the run first..last of a block."""

    def __init__(self, module: ModuleSource, block: Block, first: int, last: int, items: list[Item]) -> None:
        self._module = module
        self._run = block.statements[first : last + 1]
        self._unit = module.unit(block)
        self._emitted: set[ast.stmt] = set()
        order = [keep.statement for item in items for keep in _keeps(item)]
        head = self._run[0]
        moved = head in order and order[0] is not head and module.starts_line(head)
        top = _comment_top(module, head) if moved else 0
        own = module.line_of(module.start(head))
        self.claimed_line = top if moved and top < own else None  # comments that travel with a moved first statement

    def emit(self, item: Item, indent: str) -> str:
        if isinstance(item, Line):
            return indent + item.text
        if isinstance(item, Suite):
            inner = [self.emit(child, indent + self._unit) for child in item.items]
            return self._module.newline.join([indent + item.header, *inner])
        return self._kept(item, indent)

    def _kept(self, item: Keep, indent: str) -> str:
        module, statement = self._module, item.statement
        tail = module.line_tail_end(statement)
        end = module.end(statement) if tail is None else tail
        if not module.starts_line(statement):
            self._emitted.add(statement)
            return indent + _slice(module.text, module.start(statement), end, list(item.subs))
        own = module.line_of(module.start(statement))
        old = module.indentation(own)
        line = self._first_line(statement, own)
        self._emitted.add(statement)
        edits = [e for n in range(line, module.line_of(end) + 1) if (e := self._shift(n, old, indent, item.subs))]
        start = module.line_spans[line - 1][0]
        if line == own:  # a form feed before the statement stays where it is, outside of the edited range
            start = module.start(statement) - len(old)
        elif line == self.claimed_line:
            start += len(module.line_text(line)) - len(module.line_text(line).lstrip()) - len(module.indentation(line))
        return _slice(module.text, start, end, [*edits, *item.subs])

    def _first_line(self, statement: ast.stmt, own: int) -> int:
        """Blank lines and comments between two statements of the run belong to the second one, once."""
        if statement in self._emitted or statement not in self._run:
            return own
        position = self._run.index(statement)
        if position == 0:
            return self.claimed_line or own
        return self._module.line_of(self._module.end(self._run[position - 1])) + 1

    def _shift(self, line: int, old: str, new: str, subs: tuple[Edit, ...]) -> Edit | None:
        module = self._module
        text = module.line_text(line)
        start = module.line_spans[line - 1][0]
        if old == new or line in module.protected_lines or not text.strip(" \t\f"):
            return None
        if any(sub.start < start < sub.end for sub in subs):
            return None
        blank = text[: len(text) - len(text.lstrip(" \t\f"))]
        present = module.indentation(line)
        at = start + len(blank) - len(present)
        if present.startswith(old):
            return Edit(at, at + len(old), new)
        if text.lstrip().startswith("#"):
            return None
        return Edit(at, at, new[len(old) :] if new.startswith(old) else "")


def _keeps(item: Item) -> list[Keep]:
    if isinstance(item, Suite):
        return [keep for child in item.items for keep in _keeps(child)]
    return [item] if isinstance(item, Keep) else []


def _slice(text: str, start: int, end: int, edits: list[Edit]) -> str:
    moved = [Edit(e.start - start, e.end - start, e.text) for e in edits]
    return _apply(text[start:end], moved)
