"""Recording, as the rest of the package sees it: the one recorder, the hooks to inject, and the table of sites."""

from __future__ import annotations

from chaossloth.subject import hooks
from chaossloth.subject.recorder import (
    BLOCKED,
    COMMUTES,
    FILES,
    READ,
    SITES,
    SYNC,
    UPDATE,
    WRITE,
    RawAccess,
    Recorder,
    Site,
    recorder,
)

__all__ = [
    "BLOCKED",
    "COMMUTES",
    "FILES",
    "READ",
    "SITES",
    "SYNC",
    "UPDATE",
    "WRITE",
    "RawAccess",
    "Recorder",
    "Site",
    "hooks",
    "recorder",
]
