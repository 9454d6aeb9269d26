"""The hooks that instrumented code calls; this module is the `__chaossloth__` of the subject's namespaces.

A hook records and gives back what it was given; the operation itself stays in the subject's frame, so results,
exceptions and tracebacks are the subject's own: `o.x` becomes `ga(o, "x", site).x`. Where the operands of an
operation are not all at hand before it, three devices keep it there:

* a call `f(a, b)` becomes `call(f, site, a, b)()`: the hook sees function and arguments in order, and returns a
  `functools.partial`, which is C and adds no frame;
* an index that may not be evaluated twice is kept for the moment between the hook and the operation: `gi(o, sk(i),
  site)[k()]`; no code of the subject runs in between, and the place is per thread;
* an augmented assignment whose value suspends pushes its object, and the hook around the value takes it back before the
  value is evaluated.

Names are short because they are written into every instrumented function: g/s/d/u = get, set, delete, update; a =
attribute, i = item, l = global, c = closure variable.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.attributes import (
    forget_types,
    ga,
    gl,
    imported_globals,
    keep_dict,
    module_attribute_stores,
    own_value,
    sa,
    store,
    written_globals,
)
from chaossloth.subject.callables import handed
from chaossloth.subject.effects import call, callk, cf, cfk, cx
from chaossloth.subject.following import follow
from chaossloth.subject.foreign import FUTURES, PLAIN, nature_of
from chaossloth.subject.looking import ag, ci, it, mt, nx, overrides, ra, rk, ro, rv, tr
from chaossloth.subject.opaque import WINDOWS, behind, foreign_operation, made_at, operate, touch, vanishes
from chaossloth.subject.outside import is_file, use_file
from chaossloth.subject.recorder import READ, SYNC, UPDATE, WRITE, recorder

__all__ = [
    "ag",
    "ai",
    "aw",
    "call",
    "callk",
    "cf",
    "cfk",
    "ci",
    "ck",
    "cl",
    "cm",
    "cp",
    "cs",
    "cw",
    "cx",
    "da",
    "de",
    "di",
    "env",
    "ev",
    "forget_types",
    "ga",
    "gi",
    "gl",
    "gs",
    "gw",
    "imported_globals",
    "it",
    "k",
    "module_attribute_stores",
    "mt",
    "new",
    "nx",
    "pop",
    "push",
    "ra",
    "rk",
    "ro",
    "rt",
    "rv",
    "sa",
    "sd",
    "si",
    "sk",
    "slice_",
    "tr",
    "ua",
    "ui",
    "uwa",
    "uwi",
    "written_globals",
]

R = recorder
N = recorder.names
IDS = recorder.names.ids
KINDS = c.KINDS
_CONTEXT = contextvars.Context
slice_ = slice

# -- attributes

da = sa  # before `del o.name`


def ua(o: Any, name: str, s: int, op: str, value_suspends: bool = False) -> Any:
    """Before `o.name += ...`: read and write at once, or only the read where the value suspends."""
    if R.enabled and name == "__dict__":
        ga(o, name, s)  # now the dict goes by the object's identity
        in_place(o.__dict__, c.UNKNOWN, op, s)
    elif R.enabled:
        store(o, name, s, READ if value_suspends else UPDATE)
        old = own_value(o, name)
        if type(old) not in PLAIN:
            N.reached(old, IDS[id(o)], name)
        if not value_suspends:
            in_place(old, c.UNKNOWN, op, s)
    if value_suspends:
        _local.stack.append((o, name))
    return o


# -- items


def gi(o: Any, i: Any, s: int) -> Any:
    """Before `o[i]`."""
    if R.enabled:
        kind = KINDS.get(type(o))
        if kind:
            c.read_item(o, kind, i, s)
        elif type(o) not in PLAIN:
            _other_item(o, i, s, READ)
    return o


def si(o: Any, i: Any, s: int) -> Any:
    """Before `o[i] = ...`."""
    if R.enabled:
        kind = KINDS.get(type(o))
        if kind:
            c.write_item(o, kind, i, s)
        elif type(o) not in PLAIN:
            _other_item(o, i, s, WRITE)
    return o


def di(o: Any, i: Any, s: int) -> Any:
    """Before `del o[i]`."""
    if R.enabled:
        kind = c.kind_of(type(o))
        if kind and (type(o) in c.EXACT or not overrides(type(o), "__delitem__")):
            c.delete_item(o, kind, i, s)
        elif not kind and type(o) not in PLAIN:
            _other_item(o, i, s, WRITE)
    return o


def ui(o: Any, i: Any, s: int, op: str, value_suspends: bool = False) -> Any:
    """Before `o[i] += ...`."""
    if R.enabled:
        kind = c.kind_of(type(o))
        if kind and (type(o) in c.EXACT or not overrides(type(o), "__getitem__")):
            if value_suspends:
                c.read_item(o, kind, i, s)
            else:
                c.write_item(o, kind, i, s, UPDATE)
                in_place(c.peek_item(o, kind, i), c.UNKNOWN, op, s)
        elif not kind and type(o) not in PLAIN:
            _other_item(o, i, s, READ if value_suspends else UPDATE)
    if value_suspends:
        _local.stack.append((o, i))
    return o


def _other_item(o: Any, i: Any, s: int, mode: int) -> None:
    t = type(o)
    if t not in KINDS and c.kind_of(t):  # first sight of a subclass
        name = "__getitem__" if mode == READ else "__setitem__"
        if overrides(t, name):
            KINDS[t] = ""  # its own code is what accesses
        elif mode == READ:
            c.read_item(o, KINDS[t], i, s)
        else:
            c.write_item(o, KINDS[t], i, s)
        return
    if t in WINDOWS:
        (gi if mode == READ else si)(behind(o), i if t is not memoryview else 0, s)
        return
    nature = nature_of(t)
    if nature in ("opaque", "holder"):
        touch(o, mode, s)
    elif nature == "ours" and foreign_operation(t, "__getitem__" if mode == READ else "__setitem__"):
        operate(o, mode, s)
    elif t is _CONTEXT:
        R.not_seen("variables of a context, by item", s)


class _Local(threading.local):
    def __init__(self) -> None:
        self.index: Any = None
        self.stack: list[Any] = []


_local = _Local()


def sk(i: Any) -> Any:
    """Keep index `i` for `k`."""
    _local.index = i
    return i


def k() -> Any:
    """The index just kept."""
    i, _local.index = _local.index, None
    return i


def push(o: Any) -> Any:
    """Keep `o` until `pop`; whatever runs in between pushes and pops in pairs, or raises."""
    _local.stack.append(o)
    return o


def pop() -> Any:
    return _local.stack.pop()


def uwa(kept: tuple[Any, str], value: Any, op: str, s: int) -> Any:
    """The value of `o.name += value`, where it suspended: now comes the write."""
    if R.enabled:
        o, name = kept
        store(o, name, s, WRITE)
        in_place(own_value(o, name), value, op, s)
    return value


def uwi(kept: tuple[Any, Any], value: Any, op: str, s: int) -> Any:
    """The same for `o[i] += value`."""
    if R.enabled:
        si(*kept, s)
        o, i = kept
        kind = c.kind_of(type(o))
        if kind:
            in_place(c.peek_item(o, kind, i), value, op, s)
    return value


def in_place(old: Any, value: Any, op: str, s: int) -> None:
    t = type(old)
    kind = KINDS.get(t)
    if kind:
        c.write_in_place(old, kind, value, op, s)
    elif t not in PLAIN and nature_of(t) == "opaque":
        touch(old, UPDATE, s)
    elif t in WINDOWS and t is not memoryview:
        in_place(behind(old), value, op, s)


def ai(value: Any, old: Any, op: str, s: int) -> Any:
    """The value of `name += value`, where `name` may be a container that is changed in place."""
    if R.enabled:
        in_place(old, value, op, s)
        rv(value, s)
    return value


def cp(o: Any, s: int) -> Any:
    """Before `x in o`, with x pushed."""
    x = _local.stack.pop()
    return ci(o, x, s)


# -- variables


def gs(v: Any, module: str, name: str, s: int) -> Any:
    """`v` is about to be stored in global `name`."""
    if R.enabled:
        R.put((N.module(module), name, WRITE, s))
    return v


def gw(module: str, name: str, s: int, mode: int = WRITE) -> None:
    """Global `name` is accessed here."""
    if R.enabled:
        R.put((N.module(module), name, mode, s))


def env(function: str, names: tuple[str, ...], capture: Any) -> None:
    """`function` starts: its shared closure variables are those that `capture` captures (in sorted order)."""
    if R.enabled:
        N.environment(function, names, capture.__closure__)


def cl(v: Any, capture: Any, s: int) -> Any:
    """A closure variable was read as `v`."""
    if R.enabled:
        known = N.cells.get(id(capture.__closure__[0]))
        if known is not None:
            R.put((*known, READ, s))
            if type(v) not in PLAIN:
                N.reached(v, *known)
    return v


def cs(v: Any, capture: Any, s: int) -> Any:
    """`v` is about to be stored in a closure variable."""
    cw(capture, s)
    return v


def cw(capture: Any, s: int, mode: int = WRITE) -> None:
    """A closure variable is accessed here."""
    if R.enabled:
        known = N.cells.get(id(capture.__closure__[0]))
        if known is not None:
            R.put((*known, mode, s))


# -- others


def new(o: Any, s: int) -> Any:
    """`o` has just been made here."""
    if R.enabled and type(o) not in PLAIN:
        if id(o) not in IDS:
            N.created(o)
            made_at(o, s)
        if isinstance(o, weakref.ref):
            vanishes(o, s)
    return o


def cm(o: Any, s: int) -> Any:
    """Before `with o`: entering and leaving may change an object whose code cannot be seen."""
    if R.enabled:
        t = type(o)
        if t not in PLAIN and nature_of(t) == "opaque":
            if is_file(o):
                use_file(o, READ, s)
            else:
                touch(o, UPDATE, s)
    return o


def de(v: Any, module: str, function: str, parameter: str) -> Any:
    """`v` becomes a default value, made once and shared by all calls."""
    if type(v) not in PLAIN:
        if R.enabled:
            N.created(v)
        else:
            N.fix(v, ("default", module, function, parameter))
    return v


def ck(f: Any, s: int) -> Any:
    """`f` is a function that a builtin is about to call (`key=f`)."""
    if R.enabled and f is not None:
        handed(f, s)
    return f


def rt(o: Any, s: int) -> Any:
    """Before a builtin calls a function of unseen code on the items of `o`."""
    if R.enabled and type(o) not in c.SCALARS:
        follow(o, READ, s)
    return o


def aw(o: Any, s: int) -> Any:
    """`o` is about to be awaited: a future that is done is read now; for others the loop notes what is waited for."""
    if R.enabled and isinstance(o, FUTURES) and o.done():
        R.put((IDS.get(id(o)) or N.seen(o), "done", READ | SYNC, s))
    return o


def sd(v: Any, fresh: bool) -> Any:
    """`v` is about to become the `__dict__` of an object. fresh: nobody else has it."""
    keep_dict(v, fresh)
    return v


def ev(source: Any, s: int) -> Any:
    """Before `eval(source)` or `exec(source)`."""
    if R.enabled:
        R.not_seen("code run by eval or exec", s)
    return source
