"""What goes where while the work goes on."""

from __future__ import annotations

import errno
import io

import pytest

from chaossloth.report.progress import PHASES, Observer, OutputClosed, SilentObserver, TerminalObserver
from chaossloth.report.text import make_console, prepare_stream, terminal_width


class Terminal(io.StringIO):
    """Claims to be a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


class Full(io.StringIO):
    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    def write(self, text: str) -> int:
        raise OSError(self.code, "no")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def drive(observer: Observer) -> None:
    observer.phase_started(1, "sample")
    observer.progress("run 3", 3, 25)
    observer.phase_done(1, "sample", ["3/25 fail"])
    observer.note("remark")


def test_pipe_gets_lines_and_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out, err = io.StringIO(), io.StringIO()
    observer = TerminalObserver(out, err)
    drive(observer)
    assert (out.getvalue(), err.getvalue()) == (" 1 sample      3/25 fail\n", "")
    assert observer.printed == {1}


def test_terminal_gets_a_transient_line_on_stderr_only() -> None:
    out, err = io.StringIO(), Terminal()
    observer = TerminalObserver(out, err)
    drive(observer)
    assert out.getvalue() == " 1 sample      3/25 fail\n"
    assert "1 sample" in err.getvalue()
    assert err.getvalue().rstrip().endswith("\x1b[2K")  # erased


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_escape_code_where_none_is_wanted(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    out, err = Terminal(), Terminal()
    drive(TerminalObserver(out, err))
    assert (out.getvalue(), err.getvalue()) == (" 1 sample      3/25 fail\n", "")


def test_colour_on_a_terminal() -> None:
    out = Terminal()
    drive(TerminalObserver(out, None))
    assert out.getvalue().startswith("\x1b[1;36m 1 sample")


def test_without_evidence_stdout_stays_untouched() -> None:
    out, err = io.StringIO(), Terminal()
    observer = TerminalObserver(out, err, evidence=False)
    drive(observer)
    assert out.getvalue() == ""
    assert observer.printed == set()
    assert "1 sample" in err.getvalue()


def test_phase_nine_is_left_to_the_face() -> None:
    out = io.StringIO()
    observer = TerminalObserver(out, None)
    observer.phase_done(9, PHASES[9], ["written"])
    assert out.getvalue() == ""
    assert 9 not in observer.printed


def test_reader_gone_stops_the_work_unless_a_file_is_wanted() -> None:
    with pytest.raises(OutputClosed) as caught:
        drive(TerminalObserver(Full(errno.EPIPE), None))
    assert isinstance(caught.value.error, BrokenPipeError)
    assert not isinstance(caught.value, Exception)
    observer = TerminalObserver(Full(errno.EPIPE), None, stop_when_closed=False)
    drive(observer)
    assert observer.closed


def test_full_disk_is_told_from_a_gone_reader() -> None:
    with pytest.raises(OutputClosed) as caught:
        drive(TerminalObserver(Full(errno.ENOSPC), None))
    assert caught.value.error.errno == errno.ENOSPC


def test_stop_is_idempotent_and_silent_observer_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    observer = TerminalObserver(io.StringIO(), Terminal())
    observer.phase_started(1, "sample")
    observer.stop()
    observer.stop()
    drive(SilentObserver())
    assert capsys.readouterr() == ("", "")


def test_width(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal_width(io.StringIO()) == 100
    assert terminal_width(Terminal()) == 100
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_width(io.StringIO()) == 72
    monkeypatch.setenv("COLUMNS", "3")
    assert terminal_width(io.StringIO()) == 40
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal_width(io.StringIO()) == 100


def test_any_encoding_takes_any_text() -> None:
    binary = io.BytesIO()
    stream = io.TextIOWrapper(binary, encoding="ascii")
    prepare_stream(stream)
    stream.write("① 95 % CI 48–83 · 3 µs × 2 ≤ 4 … ← é 世 \udce9")
    stream.flush()
    assert binary.getvalue() == b"1 95 % CI 48-83 - 3 us x 2 < 4 . < \\xe9 \\u4e16 \\udce9"


def test_console_prints_brackets_as_they_are() -> None:
    stream = io.StringIO()
    make_console(stream, 100).print("[bold]x[/bold] :smile:")
    assert stream.getvalue() == "[bold]x[/bold] :smile:\n"
