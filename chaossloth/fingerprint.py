"""What the figures of a report depend on, as hashes: source, interpreter, installed packages, environment, commit."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from chaossloth.evidence import Fingerprint

__all__ = ["fingerprint", "sha256_of"]

_ENVIRONMENT = (
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONOPTIMIZE",
    "TZ",
    "LANG",
    "LC_ALL",
)


def sha256_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(path: Path, source: bytes) -> Fingerprint:
    """What an investigation of `path` (with the text `source`) depends on.

    commit: of the repository around it, with "+" where it has changes; None outside a repository or without git.
    """
    packages = sorted({f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions() if d.metadata["Name"]})
    return Fingerprint(
        commit=_commit(path.parent),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{sys.platform}-{platform.machine()}",
        lock_sha256=sha256_of(packages),
        env_sha256=sha256_of(f"{name}={os.environ.get(name, '')}" for name in _ENVIRONMENT),
        source_sha256=hashlib.sha256(source).hexdigest(),
    )


def _commit(directory: Path) -> str | None:
    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(directory), *words], capture_output=True, text=True, timeout=5, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else "")
