"""What the pipeline tells while it works, and who listens.

`Observer` is the only thing that the pipeline knows of its face. Evidence lines go to stdout as soon as their phase is
done; what is going on meanwhile is one transient line on stderr, and only where stderr is a terminal. The hard part is
that both may be the same screen: the live line is always taken down before a line of evidence is printed, instead of
letting Rich redirect stdout (redirection would also catch what other code prints, and costs a thread per write).

A reader that goes away (`chaossloth | head`) must stop the work, but a `BrokenPipeError` raised out of a callback could
be taken for a dead worker by code that talks to one. Hence `OutputClosed`: like KeyboardInterrupt, it is no Exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Protocol

from chaossloth.report.text import MARK, clip, escape, layout, live_allowed, make_console, prepare_stream

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

__all__ = ["PHASES", "Observer", "OutputClosed", "SilentObserver", "TerminalObserver", "print_phase"]

# 0 is the header: what is investigated. 9 is the face's own: it knows what was written.
PHASES: dict[int, str] = {
    0: "target",
    1: "sample",
    2: "boundary",
    3: "force",
    4: "liveness",
    5: "starvation",
    6: "cause",
    7: "repair",
    8: "verify",
    9: "report",
}


class OutputClosed(BaseException):
    """stdout takes no more: its reader has gone (BrokenPipeError) or the disk is full. Going on is pointless."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Observer(Protocol):
    """Receives the course of an investigation. Called from one thread, in phase order; must not block.

    phase_done's lines: `report.terminal.phase_lines(investigation)[number]`. Phase 0 is the header.
    progress: `done` of `total` in any unit, both None where the end is unknown.
    """

    def phase_started(self, number: int, name: str) -> None: ...

    def progress(self, text: str, done: float | None = None, total: float | None = None) -> None: ...

    def phase_done(self, number: int, name: str, lines: list[str]) -> None: ...

    def note(self, text: str) -> None: ...


class SilentObserver:
    """Says nothing: for `--json -` without a terminal, for callers of the pipeline that only want the result."""

    def phase_started(self, number: int, name: str) -> None:
        return None

    def progress(self, text: str, done: float | None = None, total: float | None = None) -> None:
        return None

    def phase_done(self, number: int, name: str, lines: list[str]) -> None:
        return None

    def note(self, text: str) -> None:
        return None


class TerminalObserver:
    """Prints evidence to `out` as phases finish, one live line to `err` meanwhile.

    evidence: False (for -q and `--json -`) keeps `out` untouched; progress is shown nevertheless, where it can be.
    stop_when_closed: raise OutputClosed once `out` has no reader; otherwise go on silently (a file is still wanted).
    printed: numbers of the phases that `out` has; `report.terminal.render` prints the others.
    """

    def __init__(
        self,
        out: IO[str],
        err: IO[str] | None,
        *,
        evidence: bool = True,
        notes: bool = False,
        stop_when_closed: bool = True,
    ) -> None:
        self.printed: set[int] = set()
        self.closed = False
        self._console: Console | None = make_console(out) if evidence else None
        self._err = err
        self._live_console = make_console(err) if err is not None and live_allowed(err) else None
        self._notes = notes
        self._stop_when_closed = stop_when_closed
        self._live: Live | None = None
        self._line = _LiveLine()

    def phase_started(self, number: int, name: str) -> None:
        if self._live_console is None:
            return
        self._line = _LiveLine(number, name)
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=self._live_console,
                get_renderable=self._render_line,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def progress(self, text: str, done: float | None = None, total: float | None = None) -> None:
        self._line.text, self._line.done, self._line.total = text, done, total

    def phase_done(self, number: int, name: str, lines: list[str]) -> None:
        self.stop()
        if self._console is None or number == 9:
            return
        print_phase(self._print, number, name, lines, self._console.width)
        self.printed.add(number)

    def note(self, text: str) -> None:
        """A remark for who follows the work (-v): to stderr, never into the evidence."""
        if not self._notes or self._err is None:
            return
        self.stop()
        prepare_stream(self._err)
        self._err.write(f"chaossloth: {escape(text)}\n")
        self._err.flush()

    def stop(self) -> None:
        """Take the live line down. Idempotent; to be called whatever happened."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _render_line(self) -> Text:
        width = self._live_console.width if self._live_console is not None else 80
        return self._line.render(width - 1)

    def _print(self, text: Text) -> None:
        if self._console is None or self.closed:
            return
        try:
            self._console.print(text, soft_wrap=True)
            self._console.file.flush()
        except OSError as error:
            self.closed = True
            if self._stop_when_closed:
                raise OutputClosed(error) from None


class _LiveLine:
    """State of the live line; rendered by Rich's refresh thread, so each field is one plain value."""

    def __init__(self, number: int = 0, name: str = "") -> None:
        self.number = number
        self.name = name
        self.text = ""
        self.done: float | None = None
        self.total: float | None = None
        self.started = time.monotonic()

    def render(self, width: int) -> Text:
        from rich.text import Text

        head = f"{self.number:2} {self.name:<11} " if self.number else "   "
        bar = self._bar() if width >= 60 else ""
        elapsed = time.monotonic() - self.started
        return Text(clip(f"{head}{bar}{escape(self.text)} · {elapsed:.0f} s", width), style="dim", no_wrap=True)

    def _bar(self, cells: int = 16) -> str:
        done, total = self.done, self.total
        if done is None or not total or total <= 0:
            return ""
        share = min(1.0, max(0.0, done / total))
        filled = round(share * cells)
        return "█" * filled + "░" * (cells - filled) + f" {share:4.0%} "


def print_phase(write: Callable[[Text], None], number: int, name: str, lines: list[str], width: int) -> None:
    """Lay one phase out and write it line by line; the header is followed by an empty line."""
    from rich.text import Text

    for index, line in enumerate(layout(number, name, lines, width)):
        text = Text(line)
        if number == 0 and index == 0:
            text.stylize("bold")
        elif index == 0:
            text.stylize("bold cyan", 0, min(len(line), 14))
        if MARK in line:
            text.stylize("red", line.index(MARK))
        write(text)
    if number == 0:
        write(Text(""))
