"""Command level: the same programs are found, or the verdict says `unobservable` and names what took part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.support import run
from tests.blind_spots.programs import SPOTS, source_of

OPTIONS = ("--runs", "0", "--no-repair", "--budget", "10")


@pytest.mark.parametrize("title", SPOTS)
def test_the_command_finds_it_or_names_it(title: str, tmp_path: Path) -> None:
    spot = SPOTS[title]
    source = source_of(spot)
    for name, text in spot.modules:
        (tmp_path / f"{name.lower()}_state.py").write_text(text)
        source = source.replace(name, f"{name.lower()}_state")
    (tmp_path / "subject.py").write_text(source)
    result = run("subject.py::main", *OPTIONS, cwd=tmp_path).result
    assert result["outcome"] == "found", (result["outcome"], result["cause"], result["notes"])
    assert result["verdict"]["word"] != "proven"
    if spot.named:
        assert result["verdict"]["word"] == "unobservable"
        assert any(spot.named in what for what in result["verdict"]["unobservable"])
