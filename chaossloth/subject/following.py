"""Objects in the hands of code that cannot be seen: what they contain counts as accessed too."""

from __future__ import annotations

import types
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.foreign import PLAIN, Effect, nature_of
from chaossloth.subject.iteration import cursors, is_lazy, sources
from chaossloth.subject.looking import ra, rk
from chaossloth.subject.opaque import WINDOWS, behind, own_dict, state_names, touch
from chaossloth.subject.outside import is_file, use_file
from chaossloth.subject.recorder import READ, UPDATE, WRITE, recorder

__all__ = ["arguments", "contained", "follow"]

R = recorder
N = recorder.names
IDS = recorder.names.ids
_LARGEST = 2000


def arguments(effect: Effect, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    """A call of foreign code with this effect is given `a` and `kw`."""
    if effect == "none":
        return
    for position, v in enumerate((*a, *kw.values())):
        if type(v) in c.SCALARS:
            continue
        if is_file(v):
            use_file(v, UPDATE, s)
        elif effect == "write" or (effect == "write first" and position == 0):
            follow(v, WRITE, s)
        elif effect == "read through":
            follow(v, READ, s)
        elif effect == "read keys":
            rk(v, s)
        else:
            ra(v, s)


def follow(o: Any, mode: int, s: int) -> None:
    """`o` is in the hands of code that cannot be seen: it, and what can be reached from it, counts as accessed."""
    pending, seen = [o], dict[int, Any]()
    while pending:
        o = pending.pop()
        if id(o) in seen:
            continue
        seen[id(o)] = o
        if len(seen) > _LARGEST:
            R.not_seen("an argument too large to follow was given to foreign code", s)
            return
        pending.extend(_access_whole(o, mode, s))


def _access_whole(o: Any, mode: int, s: int) -> list[Any]:
    t = type(o)
    kind = c.kind_of(t)
    if kind:
        (c.write_all if mode == WRITE else c.read_all)(o, kind, s)
        return contained(o, kind)
    if t is tuple:
        return contained(o, "list")
    if t in PLAIN:
        return []
    if t in WINDOWS:
        return [behind(o)]
    if is_lazy(o):
        cursors(o, s)
        return [source for source, _values in sources(o)]
    if t is types.GeneratorType or t is types.AsyncGeneratorType:
        R.put((IDS.get(id(o)) or N.seen(o), "#", UPDATE, s))
        return []
    return _access_state(o, mode, s)


def _access_state(o: Any, mode: int, s: int) -> list[Any]:
    nature = nature_of(type(o))
    if nature == "opaque":
        touch(o, mode, s)
    if nature not in ("ours", "holder"):
        return []
    number = IDS.get(id(o)) or N.seen(o)
    found, held = own_dict(o), []
    for name in state_names(o):
        R.put((number, name, mode, s))
        value = found.get(name)
        if type(value) not in PLAIN:
            N.reached(value, number, name)
            held.append(value)
    return held


def contained(o: Any, kind: str) -> list[Any]:
    values = list(dict.values(o)) if kind == "dict" else list(o)
    return [v for v in values if type(v) not in c.SCALARS]
