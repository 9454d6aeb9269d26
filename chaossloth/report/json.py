"""The JSON document on disk or stdout: whole or not at all.

A file appears by `os.replace` of a synced temporary file beside it, so that a reader never sees half a document and an
interrupted run leaves the previous one. What is no regular file (a pipe, /dev/null) is written to directly: replacing
it would remove it. A symbolic link is kept and what it points to is replaced. Lone surrogates (undecodable file
names) become \\udcXX, which JSON reads back as the same string.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

from chaossloth.errors import UsageError
from chaossloth.evidence import Investigation, dumps

__all__ = ["check_writable", "write_json"]


def check_writable(target: str) -> None:
    """Raise UsageError now if `write_json(…, target)` could not succeed later. "-" is always accepted."""
    if target == "-":
        return
    try:
        path = Path(os.path.realpath(target))
        if path.is_dir():
            raise UsageError(f"--json {target} is a folder; name a file in it, e.g. {Path(target) / 'chaossloth.json'}")
        if _special(path):
            usable = os.access(path, os.W_OK)
        else:
            usable = os.access(path, os.W_OK) if path.exists() else True
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
                pass
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--json {target} cannot be written: {reason}") from None
    if not usable:
        raise UsageError(f"--json {target} cannot be written: Permission denied")


def write_json(investigation: Investigation, target: str) -> None:
    """Write the document to `target`, or to stdout for "-". Raises OSError; the old file is then still there."""
    data = dumps(investigation).encode("utf-8", "backslashreplace")
    if target == "-":
        _to_stdout(data)
        return
    path = Path(os.path.realpath(target))
    if _special(path):
        path.write_bytes(data)
    else:
        _replace(path, data)


def _special(path: Path) -> bool:
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)


def _to_stdout(data: bytes) -> None:
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:  # a StringIO in place of stdout
        sys.stdout.write(data.decode("utf-8"))
    else:
        sys.stdout.flush()
        binary.write(data)
    sys.stdout.flush()


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: Path) -> int:
    """Permissions of the file that is replaced; for a new one what `open` would have given it."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
