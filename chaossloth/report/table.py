"""Rows of an interleaving as lines of text: which columns there are, and how wide.

The source text is what a reader needs most, so it gets its columns first: names of files move to rows of their own,
names of tasks lose what they have in common. It comes from the texts that were analysed, where the caller has them; the
files on disk may have been patched since.
"""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from chaossloth.report.text import MARK, clip, escape, pad, width_of

__all__ = ["Row", "Sources", "Style", "table_lines"]

_SOURCE = 16  # columns of source text, where a row needs them
_REMARK = 9  # "suspended"
_TASK = 12
_SHORT_TASK = 9


class Sources:
    """Lines of source files: given texts first, else the file on disk; "" where there is no such line.

    disk: False where the files may have changed since the analysis, so that only the given texts count.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, disk: bool = True) -> None:
        self._lines = {file: text.splitlines() for file, text in (texts or {}).items()}
        self._disk = disk

    def line(self, file: str, number: int) -> str:
        if file not in self._lines:
            self._lines[file] = self._read(file) if self._disk else []
        lines = self._lines[file]
        return " ".join(lines[number - 1].split()) if 1 <= number <= len(lines) else ""

    @staticmethod
    def _read(file: str) -> list[str]:
        try:
            with tokenize.open(file) as stream:
                return stream.read().splitlines()
        except (OSError, SyntaxError, ValueError):  # gone, not decodable, or no path at all ("<string>")
            return []


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `step` is -1 for a row that stands for rows left out."""

    task: str
    file: str
    line: int
    note: str
    step: int
    proc: str = ""
    location: str = ""
    name: str = ""
    mode: str = ""
    value: str | None = None
    pair: str = " "
    lost: str = ""  # " over 1": the value that a stale write overwrites
    stale: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """Widths that all tables of one finding share. Source text and remark divide the room between them.

    files: "" for a single file, "inline" before the line's number, "rows" on a row of its own when it changes.
    readable: whether both have the room that they need.
    """

    tasks: Mapping[str, str]
    task: int
    place: int
    source: int
    remark: int
    files: str
    readable: bool

    @classmethod
    def fitting(cls, rows: Sequence[Row], sources: Sources, width: int) -> Style:
        real = [row for row in rows if row.line]
        several = len({row.file for row in real}) > 1
        brief = _widest(_remark(row, 2) for row in real)
        style = cls._with(real, sources, width, "inline" if several else "", _TASK)
        if several and not style.readable:
            style = cls._with(real, sources, width, "rows", _TASK)
        if style.remark >= brief:
            return style
        shorter = cls._with(real, sources, width, style.files, _SHORT_TASK)  # a value says more than a name
        return shorter if shorter.remark >= brief else style

    @classmethod
    def _with(cls, rows: Sequence[Row], sources: Sources, width: int, files: str, limit: int) -> Style:
        tasks = _task_names({row.task for row in rows}, limit)
        task = _widest(tasks.values())
        place = _widest(_place(row, files == "inline") for row in rows)
        room = width - (2 + task + 1 + place + 1)
        wanted = source = _widest(escape(sources.line(row.file, row.line)) for row in rows)
        full, brief = (_widest(_remark(row, form) for row in rows) for form in (0, 2))
        if source + 2 + full > room:  # the short remarks, and not more than half of the room for them
            source = min(source, room - 2 - min(brief, max(12, room // 2)))
        source = max(4, source, min(wanted, _SOURCE, room - 2 - _REMARK))
        remark = max(4, room - 2 - source)
        readable = source >= min(wanted, _SOURCE) and remark >= min(brief, _REMARK)
        return cls(tasks, task, place, source, remark, files, readable)


def _task_names(tasks: Iterable[str], limit: int) -> dict[str, str]:
    """Short names that stay apart: without the class where that is enough, else cut before their number (" #2")."""
    full = {task: escape(task) for task in tasks}
    last = {task: _without_class(name) if width_of(name) > limit else name for task, name in full.items()}
    if len(set(last.values())) == len(last):
        full = last
    cut = {}
    for task, name in full.items():
        head, hash_, number = name.rpartition(" #")
        tail = f" #{number}" if hash_ and number.isdecimal() else ""
        cut[task] = clip(head, limit - len(tail)) + tail if tail else clip(name, limit)
    if len(set(cut.values())) == len(cut):
        return cut
    return {task: name if width_of(name) <= limit else _middle(name, limit) for task, name in full.items()}


def _without_class(name: str) -> str:
    head, _, number = name.partition(" #")
    return head.rpartition(".")[2] + (f" #{number}" if number else "")


def _middle(name: str, limit: int) -> str:
    """Begin and end: names that begin alike mostly end differently."""
    half = limit // 2
    return clip(name, half) + name[-(limit - half) :]


def _widest(texts: Iterable[str]) -> int:
    return max((width_of(text) for text in texts), default=1)


def _place(row: Row, several_files: bool) -> str:
    return f"{escape(PurePath(row.file).name)}:{row.line}" if several_files else str(row.line)


def table_lines(rows: Sequence[Row], style: Style, sources: Sources, width: int) -> list[str]:
    """Rows as text: pair mark, task, line, source, what happened."""
    lines = []
    file = ""
    for row in rows:
        if not row.line:
            lines.append(clip(row.note, width))
            continue
        if style.files == "rows" and row.file != file:
            file = row.file
            lines.append(clip(f"{escape(PurePath(file).name)}:", width))
        place = pad(_place(row, style.files == "inline"), style.place)
        head = f"{row.pair} {pad(style.tasks[row.task], style.task)} {place} "
        text = pad(escape(sources.line(row.file, row.line)), style.source)
        lines.append(clip((head + text + "  " + _fitted(row, style.remark)).rstrip(), width))
    return lines


def _remark(row: Row, form: int) -> str:
    """What happened: 0 in full, 1 without since when, 2 without what is lost either (sentences below say it)."""
    if not row.stale:
        return row.note
    return (f"{row.note}{row.lost} {row.stale}", f"{row.note}{row.lost} {MARK} stale", f"{row.note} {MARK}")[form]


def _fitted(row: Row, width: int) -> str:
    for form in (0, 1, 2):
        if width_of(_remark(row, form)) <= width:
            return _remark(row, form)
    return clip(row.note, width - 2) + f" {MARK}" if row.stale else clip(row.note, width)
