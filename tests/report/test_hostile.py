"""Text of the subject is shown, never obeyed: markup, control characters, bidirectional overrides, odd files."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from chaossloth.report.progress import TerminalObserver
from chaossloth.report.terminal import phase_lines, render
from chaossloth.report.text import clip, escape, layout, make_console, pad, width_of, wrap
from chaossloth.report.trace import Sources
from tests.report import samples

HOSTILE = "[red]a[/red] \x1b[31mb\x1b]0;title\x07 c\x9b2J \u202ed\u2066 e\x00\u200b"
SHOWN = "[red]a[/red] \\x1b[31mb\\x1b]0;title\\x07 c\\x9b2J \\u202ed\\u2066 e\\x00\\u200b"


def test_escape() -> None:
    assert escape(HOSTILE) == SHOWN
    assert escape(SHOWN) == SHOWN
    assert escape("a\udce9") == "a\\udce9"
    assert escape("Grüße, 世界 · é") == "Grüße, 世界 · é"
    assert escape("+\tx\x1b", keep="\t") == "+\tx\\x1b"


def hostile() -> samples.Investigation:
    pair = tuple(replace(access, object=f"Store[{HOSTILE!r}]", task=HOSTILE) for access in samples.PAIR)
    steps = tuple(
        replace(step, task=HOSTILE, accesses=tuple(replace(a, value=HOSTILE) for a in step.accesses))
        for step in samples.FAILING
    )
    repair = replace(samples.REPAIR, diff=samples.DIFF + f"+\t# {HOSTILE}\n", tried=(HOSTILE,))
    finding = replace(
        samples.FINDING,
        message=HOSTILE,
        explanation=HOSTILE,
        critical_pair=pair,
        trace={"failing": steps, "passing": steps},
        repair=repair,
    )
    target = replace(samples.found().target, path=f"{HOSTILE}.py", how_chosen=HOSTILE, arguments=(HOSTILE,))
    return samples.repaired(findings=(finding,), target=target, notes=(HOSTILE,), reproduce=f"chaossloth {HOSTILE}")


@pytest.mark.parametrize("width", [40, 100])
def test_no_control_character_reaches_the_terminal(width: int) -> None:
    stream = io.StringIO()
    sources = {samples.FILE: samples.SOURCE.replace("asyncio.sleep(0.001)", f"x('{HOSTILE}')")}
    render(hostile(), make_console(stream, width), 1, sources=sources, written=[HOSTILE])
    text = stream.getvalue()
    assert not set(text) & set("\x1b\x07\x9b\x00\u202e\u2066\u200b\r")
    assert "[red]a[/red]" in text
    assert "+\t# [red]a[/red] \\x1b[31mb" in text


def test_colours_of_a_terminal_are_only_ours() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", width=100, markup=False)
    render(hostile(), console, 1, sources=samples.SOURCES)
    text = stream.getvalue()
    assert "\x1b[" in text
    assert not set(text) & set("\x07\x9b\x00\u202e")
    assert "\x1b]0" not in text
    assert "\\x1b]0;title\\x07" in text


def test_phase_lines_are_escaped_already() -> None:
    for body in phase_lines(hostile(), width=100).values():
        assert all(line == escape(line) for line in body)


def test_observer_escapes_what_it_is_given() -> None:
    out, err = io.StringIO(), io.StringIO()
    observer = TerminalObserver(out, err, notes=True)
    observer.phase_started(1, "sample")
    observer.progress(HOSTILE, 1, 2)
    observer.phase_done(1, "sample", [HOSTILE])
    observer.note(HOSTILE)
    assert out.getvalue() == f" 1 sample      {SHOWN}\n"
    assert err.getvalue() == f"chaossloth: {SHOWN}\n"


def test_long_message_is_cut_and_several_lines_become_one() -> None:
    finding = replace(samples.FINDING, message="first\nsecond")
    assert phase_lines(samples.found(findings=(finding,)), width=100)[3][2] == "not serializable: first …"
    finding = replace(samples.FINDING, message="x" * 10_000_000)
    assert phase_lines(samples.found(findings=(finding,)), width=100)[3][2] == f"not serializable: {'x' * 300} …"


def test_wide_characters_keep_columns() -> None:
    assert width_of("世界") == 4
    assert width_of(pad("世界世界", 6)) == 6
    assert clip("世界世界", 5) == "世界…"
    assert wrap("世界" * 3, 5) == ["世界", "世界", "世界"]


def test_wrap_keeps_every_character_of_a_long_word() -> None:
    word = "x" * 97
    assert "".join(wrap(word, 10)) == word
    assert wrap("", 10) == [""]
    assert wrap("a bb ccc", 4) == ["a bb", "ccc"]
    assert layout(1, "sample", ["y" * 200], 100)[0] == " 1 sample      " + "y" * 85


def test_missing_binary_and_short_sources(tmp_path: Path) -> None:
    binary, latin = tmp_path / "binary.py", tmp_path / "latin.py"
    binary.write_bytes(b"\x80\x81\n")
    latin.write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    sources = Sources()
    assert sources.line(str(binary), 1) == ""
    assert sources.line(str(tmp_path / "none.py"), 1) == ""
    assert sources.line("<string>", 1) == ""
    assert sources.line("a\0b", 1) == ""
    assert sources.line(str(latin), 2) == "x = 'é'"
    assert sources.line(str(latin), 99) == ""


def test_given_text_wins_over_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "store.py"
    file.write_text("patched\n")
    assert Sources({str(file): "analysed\n"}).line(str(file), 1) == "analysed"
