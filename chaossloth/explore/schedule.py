"""A schedule as plain data, and the short token that replays it.

A schedule is the label of its model, the seed of every draw, its deviations from stock order: pairs (ordinal of the
choice point, option taken), everything else is option 0; the cancellations that it adds; and whether what nobody
references is collected before every step. Token grammar, all numbers but those of a task's identity in base 36:

    token     = label seed [ "_" ] *( "-" ordinal "." option ) *( "+" task kind step ) ":" check
                                                        e.g.  s0:3kf   r2-5.1-b.2:0x9   s0-4.1+0.2x3:7c1
    label     = "s" (stock) | "l" (latency) | "r" (reorder)
    "_"       = collected before every step, see `loop.collecting`
    task      = identity of the task that is cancelled (`loop.identity`); step: while it is suspended after that step
    kind      = "x" | "z" | "t" | "u"   (`loop.cancelling`)
    check     = CRC of the sequence of steps, so that a replay that took another path is noticed, never accepted
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from chaossloth.errors import UsageError
from chaossloth.evidence import Label
from chaossloth.loop.cancelling import KINDS, Cancel

__all__ = ["Schedule", "checksum", "parse_token"]

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LETTER: dict[str, Label] = {"s": "stock", "l": "latency", "r": "reorder"}
_CANCEL = re.compile(rf"\+([0-9.c]+)([{KINDS}])([0-9a-z]+)")
_TOKEN = re.compile(
    rf"([slr])([0-9a-z]+)(_?)((?:-[0-9a-z]+\.[0-9a-z]+)*)((?:\+[0-9.c]+[{KINDS}][0-9a-z]+)*):([0-9a-z]+)"
)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
        if not number:
            return digits


@dataclass(frozen=True, slots=True)
class Schedule:
    """label: model; seed: of all draws; deviations: (choice ordinal, option) in order; check: see the module.

    cancels: in the order in which they come. collect: what nobody references is collected before every step.
    """

    label: Label
    seed: int
    deviations: tuple[tuple[int, int], ...] = ()
    check: str = ""
    cancels: tuple[Cancel, ...] = ()
    collect: bool = False

    @property
    def token(self) -> str:
        letter = {"stock": "s", "latency": "l", "reorder": "r"}[self.label]
        points = "".join(f"-{_base36(at)}.{_base36(option)}" for at, option in self.deviations)
        cancels = "".join(f"+{each.victim}{each.kind}{_base36(each.step)}" for each in self.cancels)
        collected = "_" if self.collect else ""
        return f"{letter}{_base36(self.seed)}{collected}{points}{cancels}:{self.check}"


def checksum(order: Iterable[tuple[str, str]]) -> str:
    """Three base-36 digits of a CRC over (identity, cause) of every step."""
    text = "".join([f"{key}/{cause};" for key, cause in order])
    return _base36(zlib.crc32(text.encode()) % 46656)


def parse_token(token: str) -> Schedule:
    """The schedule that `token` stands for. UsageError when it is none."""
    match = _TOKEN.fullmatch(token.strip())
    if match is None:
        raise UsageError(f"{token!r} is no replay token (one looks like s0-5.1:3kf); copy it from the line 'reproduce'")
    letter, seed, collected, points, added, check = match.groups()
    deviations = tuple((int(at, 36), int(option, 36)) for at, option in (p.split(".") for p in points.split("-")[1:]))
    if any(a >= b for (a, _), (b, _) in zip(deviations, deviations[1:], strict=False)):
        raise UsageError(f"{token!r} is no replay token: its choices are not in order")
    cancels = tuple(Cancel(victim, int(step, 36), kind) for victim, kind, step in _CANCEL.findall(added))
    return Schedule(_LETTER[letter], int(seed, 36), deviations, check, cancels, bool(collected))
