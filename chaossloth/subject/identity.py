"""Stable identities of the subject's objects: equal in every execution of the same program, never `id()`.

An object is named where it is created: (proc, step ordinal, n-th creation in that step). What was created out of
sight (before the run, or by code that is not instrumented) is named by the path on which it is first reached:
(parent, key). Only what is reached on no path is named by its first accessor; such names have their own counter, so
that they cannot shift the names of creations. (Naming everything by its first accessor makes identities depend on
the schedule.)

Identities are interned to small integers that outlive a run, so equal identities are equal integers in later runs.
The address -> identity table must never serve a dead object: objects that can be referenced weakly are watched
weakly and keep their natural lifetime (tasks and futures always are); the others (lists, dicts, cells) are held, and
let go at the end of the step in which the subject dropped its last reference.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import types
import weakref
from collections.abc import Hashable
from functools import partial
from typing import Any

__all__ = ["Names", "OTHERS_EVERY_STEP"]

OTHERS_EVERY_STEP = 256  # up to so many held objects are checked after every step; beyond, ever more rarely

_CONTAINERS = (dict, list, set, collections.deque, bytearray)
Key = Hashable
Identity = tuple[Any, ...]


class Names:
    """Addresses to identities, and identities to what a person should read.

    ids: address -> identity number (1, 2, ...); read directly by the hooks.
    proc, ordinal, made, met: the running step, and how many objects it has named as created and as seen so far.
    young, old: addresses of held objects, those of this step and those of earlier ones.
    paths: identity number -> (parent number, key) on which it was first reached in this run, for display.
    inside: identity number of an object whose code cannot be seen -> those of the objects that were given to it.
    watched: identity numbers of the weak references and weak containers that are looked at when steps end.
    """

    def __init__(self) -> None:
        self.ids: dict[int, int] = {}
        self.paths: dict[int, tuple[int, Key]] = {}
        self.types: list[type | None] = [None]
        self.identities: list[Identity] = [()]
        self.persistent: set[int] = set()
        self.cells: dict[int, tuple[int, str]] = {}
        self.inside: dict[int, set[int]] = {}
        self.watched: set[int] = set()
        self._fixed: dict[int, tuple[Any, Identity]] = {}
        self._fixed_at: dict[Identity, int] = {}
        self._labels: dict[int, str] = {}
        self._addresses: dict[int, int] = {}
        self._variables: dict[tuple[int, str], int] = {}
        self._numbers: dict[Identity, int] = {}
        self._refs: dict[int, weakref.ref[Any]] = {}
        self._forget = self.ids.pop
        self._held: dict[int, Any] = {}
        self.young: list[int] = []
        self.old: list[int] = []
        self._sweeps = 0
        self.proc = 0
        self.ordinal = 0
        self.made = 0
        self.met = 0

    # -- runs and steps

    def start_run(self) -> None:
        """Forget every object (identity numbers stay what they were)."""
        for table in (self.ids, self.cells, self.paths, self._refs, self._held, self._addresses, self._variables):
            table.clear()
        self.inside.clear()
        self.watched.clear()
        self.young.clear()
        self.old.clear()
        self.begin_step(0, 0)

    def begin_step(self, proc: int, ordinal: int) -> None:
        self.proc, self.ordinal, self.made, self.met = proc, ordinal, 0, 0

    def end_step(self) -> None:
        """Let go of held objects that nobody else refers to any more."""
        if self.young:
            self.old.extend(self._sweep(self.young))
            self.young.clear()
        self._sweeps += 1
        if self.old and self._sweeps * OTHERS_EVERY_STEP >= len(self.old):
            self._sweeps = 0
            self.old = self._sweep(self.old)

    def _sweep(self, addresses: list[int]) -> list[int]:
        held, alive = self._held, []
        for address in reversed(addresses):  # what holds others was mostly made after them
            if address not in held:
                continue
            o = held[address]
            if sys.getrefcount(o) <= _ONLY_HELD:
                self.ids.pop(address, None)
                self.cells.pop(address, None)
                del held[address]
            else:
                alive.append(address)
            o = None
        alive.reverse()
        return alive

    def release(self) -> None:
        """Hold nothing any more, so that a garbage collection may find cycles through named lists and dicts.

        Their names are forgotten with them; afterwards they are named by path again.
        """
        for address in list(self._held):
            self.ids.pop(address, None)
            self.cells.pop(address, None)
        self._held.clear()
        self._variables.clear()
        self.young.clear()
        self.old.clear()

    # -- naming

    def created(self, o: Any) -> int:
        """The identity of `o`, which the running step has just made."""
        known = self.ids.get(id(o))
        if known is not None:
            return known
        if isinstance(o, asyncio.Task):
            return self.seen(o)
        self.made += 1
        return self._enter(o, self.number((self.proc, self.ordinal, self.made, "new")))

    def reached(self, o: Any, parent: int, key: Key) -> int:
        """The identity of `o`, found at `key` of `parent`; the path also becomes its display name if it has none."""
        known = self.ids.get(id(o))
        if known is None:
            symbol = self._symbol(o)
            if symbol is not None:
                return self._enter(o, self.number(symbol))
            known = self._enter(o, self.number(("path", parent, key)))
        if known not in self.paths:
            self.paths[known] = (parent, key)
        return known

    def seen(self, o: Any) -> int:
        """The identity of `o`, met without a path."""
        known = self.ids.get(id(o))
        if known is not None:
            return known
        if type(o) is dict and "__chaossloth__" in o:  # the namespace of an instrumented module (`globals()`)
            self.alias(o, self.module(o["__name__"]))
            return self.ids[id(o)]
        symbol = self._symbol(o)
        if symbol is None:
            self.met += 1
            symbol = (self.proc, self.ordinal, self.met, "seen")
        return self._enter(o, self.number(symbol))

    def task(self, key: str) -> int:
        """The identity of the task whose place in the tree of creators is `key` (see `chaossloth.loop.identity`)."""
        return self.number(("task", key))

    def known(self, o: Any) -> int:
        """The identity of a future or task; 0 for one that the subject has not met."""
        return self.ids.get(id(o)) or (self.seen(o) if isinstance(o, asyncio.Task) else 0)

    def due(self, future: asyncio.Future[Any], key: str) -> None:
        """Name the future that the timer `key` will set, so that it is the same whoever meets it first."""
        if id(future) not in self.ids:
            self._enter(future, self.number(("due", key)))

    def fix(self, o: Any, identity: Identity) -> None:
        """Give `o`, which exists before any run, its identity for all runs (a mutable default of a parameter)."""
        self._fixed.pop(self._fixed_at.pop(identity, 0), None)
        self._fixed[id(o)] = (o, identity)
        self._fixed_at[identity] = id(o)

    def _symbol(self, o: Any) -> Identity | None:
        fixed = self._fixed.get(id(o))
        return fixed[1] if fixed is not None else _symbol(o)

    def alias(self, o: Any, number: int) -> None:
        """Make `o` (an instance's `__dict__`) the same object as `number`: its keys are that object's attributes."""
        self.ids[id(o)] = number
        self._hold(o)

    def join(self, o: Any, number: int) -> None:
        """Let `o` be the same object as `number` from now on: its `__dict__` has become that dict."""
        if id(o) not in self.ids:
            self.seen(o)
        self.ids[id(o)] = number

    def environment(self, function: str, names: tuple[str, ...], cells: tuple[types.CellType, ...]) -> None:
        """Name the closure variables of one activation of `function`."""
        self.made += 1
        number = self.number((self.proc, self.ordinal, self.made, "env"))
        self._labels[number] = function
        for name, cell in zip(names, cells, strict=True):
            self.cells[id(cell)] = (number, name)
            self._variables[number, name] = id(cell)
            self._hold(cell)

    def module(self, name: str) -> int:
        return self.number(("module", name))

    def number(self, identity: Identity) -> int:
        found = self._numbers.get(identity)
        if found is None:
            found = self._numbers[identity] = len(self.identities)
            self.identities.append(identity)
            self.types.append(None)
            if _outlives(identity, self.persistent):
                self.persistent.add(found)
        return found

    def _enter(self, o: Any, number: int) -> int:
        address = id(o)
        self.ids[address] = number
        self._addresses[number] = address
        self.types[number] = type(o)
        if type(o).__weakrefoffset__:  # when it dies, C code alone takes its address out of `ids`
            self._refs[address] = weakref.ref(o, partial(self._forget, address))
        else:  # lists, dicts, instances with __slots__, most iterators
            self._hold(o)
        return number

    def _hold(self, o: Any) -> None:
        address = id(o)
        if address not in self._held:
            self._held[address] = o
            self.young.append(address)

    # -- reading

    def object(self, number: int) -> Any:
        """The living object of this identity in this run, or None."""
        address = self._addresses.get(number, 0)
        if self.ids.get(address) != number:
            return None
        if address in self._held:
            return self._held[address]
        ref = self._refs.get(address)  # a dead one may be left of what was there before
        return ref() if ref is not None else None

    def variable(self, number: int, name: str) -> types.CellType | None:
        return self._held.get(self._variables.get((number, name), 0))

    def location(self, number: int, key: Key) -> str:
        """Stable text of (object, key)."""
        return f"{self._identity_text(number)}:{key!r}"

    def _identity_text(self, number: int) -> str:
        identity = self.identities[number]
        if identity[0] == "path":
            return f"{self._identity_text(identity[1])}/{identity[2]!r}"
        return ".".join(str(part) for part in identity)

    def display(self, number: int, key: Key) -> str:
        """(object, key) for people: "Wallet._row['gold']", "module.NAME", "function.variable"."""
        base = self._base(number, 0)
        if key == "#":
            return base
        if self._keyed(number):
            return f"{base}[{self._key_text(key)}]"
        return f"{base}.{key}"

    def _base(self, number: int, depth: int) -> str:
        identity, path = self.identities[number], self.paths.get(number)
        if number in self._labels:
            return self._labels[number]
        if identity[0] in ("module", "file"):
            return str(identity[1])
        if identity[0] == "task":
            return f"task {identity[1]}"
        if identity[0] in ("class", "function"):
            return str(identity[2]).rpartition(".")[2]
        if identity[0] == "default":
            return f"{identity[2]}.{identity[3]}"
        if path is not None and depth < 8 and self._goes_by_path(number):
            parent, key = path
            base = self._base(parent, depth + 1)
            return f"{base}[{self._key_text(key)}]" if self._keyed(parent) else f"{base}.{key}"
        kind = self.types[number]
        return kind.__name__ if kind is not None else "object"

    def _keyed(self, number: int) -> bool:
        kind = self.types[number]
        return kind is not None and issubclass(kind, _CONTAINERS)

    def _goes_by_path(self, number: int) -> bool:
        """Containers and asyncio's primitives say nothing by their class: they go by where they are kept."""
        kind = self.types[number]
        return self._keyed(number) or (kind is not None and kind.__module__.startswith("asyncio."))

    def _key_text(self, key: Key) -> str:
        if isinstance(key, tuple) and len(key) == 2 and key[0] == "object":
            return self._base(key[1], 1)
        return repr(key)


def _symbol(o: Any) -> Identity | None:
    """Classes and functions are named by what they are called: sound (equal names are one object), and stable."""
    if isinstance(o, type):
        return ("class", o.__module__, o.__qualname__)
    if isinstance(o, types.FunctionType):
        return ("function", o.__module__, o.__qualname__)
    if isinstance(o, types.ModuleType):
        return ("module", o.__name__)
    if isinstance(o, asyncio.Task):
        place = getattr(o.get_loop(), "proc_of", _no_place)(o)
        return ("task", place.key) if place is not None else None
    return None


def _no_place(task: Any) -> None:
    """Another loop's task: it is named by who meets it."""


def _outlives(identity: Identity, persistent: set[int]) -> bool:
    if identity[0] == "path":
        return identity[1] in persistent
    return identity[0] in ("module", "default") or (
        identity[0] in ("class", "function") and "<locals>" not in identity[2]
    )


def _count_when_only_held() -> int:
    """What `sys.getrefcount` says inside `_sweep` of an object that only the table refers to."""
    held: dict[int, Any] = {0: []}
    o = held[0]
    return sys.getrefcount(o)


_ONLY_HELD = _count_when_only_held()
