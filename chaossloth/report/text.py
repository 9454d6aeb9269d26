"""Plain text for terminals: escaping, clipping, wrapping, and consoles that print exactly what they are given.

Everything shown may come from the subject: its source, its exceptions' messages, its file names. So nothing is ever
parsed as Rich markup (only `Text` objects are printed), and every character that could act on the terminal, hide, or
reorder its neighbours is printed as a Python escape: C0 and C1 controls, bidirectional overrides and zero-width
characters ("Trojan Source", Boucher and Anderson 2021), line separators and lone surrogates of undecodable file names.
"""

from __future__ import annotations

import codecs
import os
import sys
import unicodedata
from functools import cache
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "INDENT",
    "MARK",
    "NARROWEST",
    "clip",
    "escape",
    "layout",
    "live_allowed",
    "make_console",
    "pad",
    "prepare_stream",
    "is_terminal",
    "terminal_width",
    "width_of",
    "wrap",
]

INDENT = 15  # " 1 sample      "
NARROWEST = 40
MARK = "←"  # what deserves the eye in a row of a trace
PLAIN_WIDTH = 100

# Printed by common terminals as nothing or as an instruction: format, control, surrogate, private, line and paragraph.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ASCII = str.maketrans("·–—…×µ≤←→│█░①②", "---.xu<<>|#.12")


def escape(text: str, keep: str = "") -> str:
    """`text` with every hidden or controlling character, but for those in `keep`, as a Python escape.

    Safe to apply twice. A diff keeps its tabs: it must stay applicable.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c) if unicodedata.category(c) in _HIDDEN and c not in keep else c for c in text)


def _visible(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def width_of(text: str) -> int:
    """Terminal cells that `text` takes (East Asian wide characters take two)."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def clip(text: str, width: int) -> str:
    """`text` in at most `width` cells, the cut marked."""
    if width_of(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """`text` in exactly `width` cells."""
    text = clip(text, width)
    return text + " " * (width - width_of(text))


def wrap(text: str, width: int) -> list[str]:
    """Words of `text` in lines of at most `width` cells; only a word longer than a line is broken."""
    if width_of(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width:
            line = joined
            continue
        if line.strip():
            lines.append(line.rstrip())
        while width_of(word) > width:
            head = _head(word, width)
            lines.append(head)
            word = word[len(head) :]
        line = word
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _head(word: str, width: int) -> str:
    used = 0
    for index, char in enumerate(word):
        used += width_of(char)
        if used > width:
            return word[: max(1, index)]
    return word


def layout(number: int, name: str, lines: list[str], width: int) -> list[str]:
    """A phase's evidence as printed: number and name once, then aligned.

    A line that begins with two spaces is preformatted (a row of a table that needs the whole width): it is cut at
    `width`, never wrapped. Phase 0 is the header, printed without number. Narrow terminals get a smaller indentation.
    """
    if number == 0:
        return [part for line in lines for part in wrap(escape(line), width)]
    indent = INDENT if width >= 60 else 4
    rows: list[str] = []
    for line in map(escape, lines):
        if line.startswith("  "):
            rows.append(clip(line, width))
        else:
            rows += [" " * indent + part for part in wrap(line, width - indent)]
    prefix = f"{number:2} {name:<11} "
    if indent < INDENT or not lines or lines[0].startswith("  "):
        return [prefix.rstrip(), *rows]
    return [prefix + rows[0][INDENT:], *rows[1:]]


def terminal_width(stream: IO[str] | None = None) -> int:
    """COLUMNS where set, else the size of the terminal behind `stream`, else 100; at least 40."""
    stream = stream if stream is not None else sys.stdout
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(NARROWEST, int(asked))
    try:
        if is_terminal(stream):
            # A pseudo-terminal that nobody sized reports 0 columns.
            return max(NARROWEST, os.get_terminal_size(stream.fileno()).columns or PLAIN_WIDTH)
    except OSError:  # a terminal without a size, or a stream without a descriptor
        return PLAIN_WIDTH
    return PLAIN_WIDTH


def is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def live_allowed(stream: IO[str] | None) -> bool:
    """Whether escape codes may be written to `stream`: a capable terminal, and no NO_COLOR (no-color.org)."""
    return (
        is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("dumb", "unknown")
    )


def make_console(stream: IO[str], width: int | None = None) -> Console:
    """A Rich console that prints `Text` verbatim: no markup, emoji, highlighting; escape codes only where allowed.

    Rich alone would emit bold under NO_COLOR and colours into a pipe under FORCE_COLOR; neither may happen here.
    """
    prepare_stream(stream)
    styled = live_allowed(stream)
    return _console_class()(
        file=stream,
        width=width if width is not None else terminal_width(stream),
        force_terminal=styled,
        no_color=not styled,
        color_system="auto" if styled else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


@cache
def _console_class() -> type[Console]:
    """Rich's console, but a reader who left is the caller's affair: Rich exits with 1, which here means a finding."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError that is being handled

    return _Console


def prepare_stream(stream: IO[str]) -> None:
    """Let a stream of any encoding take any text: typography becomes ASCII, the rest an escape."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        codecs.register_error("chaossloth", _replace)
        reconfigure(errors="chaossloth")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(c if c.isascii() else _visible(c) for c in bad.translate(_ASCII)), error.end
