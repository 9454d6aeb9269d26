"""Writing a patch: atomic, only over what was analysed, encoding and line endings kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaossloth.errors import UsageError
from chaossloth.repair.apply import apply_patch, decode_source, encode_source


def test_replaces_the_content_and_keeps_the_permissions(tmp_path: Path) -> None:
    file = tmp_path / "subject.py"
    file.write_bytes(b"x = 1\n")
    file.chmod(0o750)
    apply_patch(file, b"x = 1\n", b"x = 2\n")
    assert file.read_bytes() == b"x = 2\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["subject.py"]


def test_a_changed_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "subject.py"
    file.write_bytes(b"x = 3\n")
    with pytest.raises(UsageError, match="was changed while it was analysed"):
        apply_patch(file, b"x = 1\n", b"x = 2\n")
    assert file.read_bytes() == b"x = 3\n"


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "subject.py", tmp_path / "link.py"
    file.write_bytes(b"x = 1\n")
    link.symlink_to(file)
    apply_patch(link, b"x = 1\n", b"x = 2\n")
    assert link.is_symlink()
    assert file.read_bytes() == b"x = 2\n"


def test_a_file_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        apply_patch(tmp_path / "gone.py", b"", b"x")


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1\r\ny = 2\r\n",
        b"\xef\xbb\xbfx = 'caf\xc3\xa9'\n",
        "# -*- coding: latin-1 -*-\nx = 'caf\u00e9'\n".encode("latin-1"),
        b"x = 1",
        b"\x0cx = 1\n",
    ],
)
def test_decoding_and_encoding_is_the_identity(data: bytes) -> None:
    assert encode_source(decode_source(data), data) == data
