"""`write_json`: whole files or none, and no file is destroyed that cannot be replaced."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from chaossloth.errors import UsageError
from chaossloth.report import json as report_json
from chaossloth.report.json import check_writable, write_json
from tests.report import samples


def test_file_holds_the_document_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    write_json(samples.repaired(), str(target))
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document["schema"] == "chaossloth/1"
    assert document["findings"][0]["repair"]["diff"] == samples.DIFF
    assert os.listdir(tmp_path) == ["out.json"]


def test_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def stop(source: object, destination: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report_json.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_json(samples.repaired(), str(target))
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_permissions_are_those_of_a_plain_file(tmp_path: Path) -> None:
    plain, new, kept = tmp_path / "plain", tmp_path / "new", tmp_path / "kept"
    plain.touch()
    kept.touch()
    kept.chmod(0o640)
    write_json(samples.investigation(), str(new))
    write_json(samples.investigation(), str(kept))
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640


def test_symbolic_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    check_writable(str(link))
    write_json(samples.investigation(), str(link))
    assert link.is_symlink()
    assert json.loads(target.read_text())["outcome"] == "clean"


def test_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(str(fifo))
        write_json(samples.investigation(), str(fifo))
        assert stat.S_ISFIFO(fifo.stat().st_mode)
        assert json.loads(os.read(reader, 1 << 16))["outcome"] == "clean"
    finally:
        os.close(reader)


def test_undecodable_file_name_is_valid_json(tmp_path: Path) -> None:
    target = samples.Target("caf\udce9.py", None, (), "scenario")
    out = tmp_path / "out.json"
    write_json(samples.investigation(target=target), str(out))
    assert json.loads(out.read_bytes().decode("utf-8"))["target"]["path"] == "caf\udce9.py"


def test_folder_and_missing_folder_are_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        check_writable(str(tmp_path))
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        check_writable(str(tmp_path / "missing" / "out.json"))
    with pytest.raises(UsageError, match="cannot be written"):
        check_writable("a\0b")


def test_check_creates_nothing(tmp_path: Path) -> None:
    check_writable(str(tmp_path / "out.json"))
    check_writable("-")
    assert os.listdir(tmp_path) == []
