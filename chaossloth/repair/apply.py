"""Writing a patch to the disk: atomically, and only over the very bytes that were analysed."""

from __future__ import annotations

import io
import os
import tempfile
import tokenize
from pathlib import Path

from chaossloth.errors import UsageError

__all__ = ["apply_patch", "decode_source", "encode_source"]


def apply_patch(path: Path, analysed: bytes, patched: bytes) -> None:
    """Replace the file's content. Follows symbolic links to the file they mean; keeps its permissions.

    Raises UsageError, and changes nothing, when the file is not what was analysed or cannot be written.
    """
    real = Path(os.path.realpath(path))
    try:
        if real.read_bytes() != analysed:
            raise UsageError(f"{path} was changed while it was analysed; nothing was written: run chaossloth again")
        _replace(real, patched)
    except OSError as error:
        raise UsageError(
            f"the patch cannot be written to {path}: {error.strerror or error}; nothing was changed"
        ) from error


def _replace(real: Path, patched: bytes) -> None:
    mode = real.stat().st_mode
    if not (mode & 0o222 and os.access(real, os.W_OK)):  # the mode is the user's word, also where root may write
        raise PermissionError(13, "the file is read-only")
    handle, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(patched)
            temporary.flush()
            os.fsync(temporary.fileno())
        os.chmod(name, mode & 0o7777)
        os.replace(name, real)
    except BaseException:
        os.unlink(name)
        raise


def decode_source(data: bytes) -> str:
    """Source text with its byte order mark and line endings as they are (PEP 263 for the encoding)."""
    return data.decode(_encoding(data))


def encode_source(text: str, analysed: bytes) -> bytes:
    """`text` in the encoding of the bytes that it was made from."""
    return text.encode(_encoding(analysed))


def _encoding(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return "utf-8" if encoding == "utf-8-sig" else encoding
