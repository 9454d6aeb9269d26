"""The recorder: who accessed what in the running step.

Lean mode costs one tuple append per access; the list's own `append` is what the hooks call. Detail mode replaces it
by a function that adds a short text of the value and the subject's stack. A written value is not known before
the write, and the hooks record first (so that no hook frame can appear in the subject's tracebacks): it is filled in
when the next access is recorded, or at the end of the step.
"""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from chaossloth.evidence import Access, Frame
from chaossloth.subject.identity import Names
from chaossloth.subject.keys import key_of

__all__ = [
    "BLOCKED",
    "COMMUTES",
    "FILES",
    "NO_SITE",
    "READ",
    "SITES",
    "SYNC",
    "UPDATE",
    "WRITE",
    "RawAccess",
    "Recorder",
    "Site",
    "add_site",
    "recorder",
]

READ, WRITE, UPDATE, SYNC = 1, 2, 3, 4
BLOCKED, COMMUTES = 8, 16  # waits for a write; an update whose order with its like does not matter
_CHANGES = WRITE | COMMUTES
RawAccess = tuple[Any, ...]  # (object number, key, mode bits, site) and in detail mode (..., value text, stack)
FILES: set[str] = set()  # file names of instrumented code
_MODES: dict[int, Literal["read", "write", "update"]] = {READ: "read", WRITE: "write", UPDATE: "update"}
_MODE_BITS = {"read": READ, "write": WRITE, "update": UPDATE, "blocked": BLOCKED, "commutes": COMMUTES}
_SYNC_BITS = {mode: bits | SYNC for mode, bits in _MODE_BITS.items()}
_MAX_STACK = 24
_MAX_TEXT = 60
_MAX_ITEMS = 6


@dataclass(frozen=True, slots=True)
class Site:
    """A place in instrumented source. kind: what is done there ("attribute", "item", "call", ...)."""

    file: str
    line: int
    function: str
    kind: str


SITES: list[Site] = []
_site_numbers: dict[Site, int] = {}


def add_site(site: Site) -> int:
    """The number of `site`; equal sites share one, so that loading variants again and again adds nothing."""
    number = _site_numbers.get(site)
    if number is None:
        number = _site_numbers[site] = len(SITES)
        SITES.append(site)
    return number


NO_SITE = add_site(Site("", 0, "", "primitive"))


class Recorder:
    """Collects the accesses of one step after the other.

    enabled: hooks record. detail: with values and stacks. unobservable: "what: where" for what could not be seen.
    grown, ordered: numbers of the dicts and sets that got or lost keys, and of those that were iterated, in this run:
    see `commuting`.
    """

    __slots__ = (
        "enabled",
        "grown",
        "names",
        "ordered",
        "put",
        "unobservable",
        "_detail",
        "_raw",
        "_unsettled",
        "_later",
        "_checks",
        "_persistent",
    )

    def __init__(self) -> None:
        self.names = Names()
        self.enabled = False
        self.unobservable: set[str] = set()
        self.grown: set[int] = set()
        self.ordered: set[int] = set()
        self._detail = False
        self._persistent: set[tuple[int, Hashable]] = set()
        self._later: list[Callable[[], None]] = []
        self._checks: list[Callable[[], bool]] = []
        self._unsettled: list[int] = []
        self._raw: list[RawAccess] = []
        self.put: Callable[[RawAccess], None] = self._raw.append

    @property
    def detail(self) -> bool:
        return self._detail

    @detail.setter
    def detail(self, on: bool) -> None:
        self._detail = on
        self.put = self._put_in_detail if on else self._raw.append

    # -- runs and steps

    def start_run(self) -> None:
        """Forget the objects and findings of the previous run."""
        self.names.start_run()
        self.unobservable.clear()
        self._persistent.clear()
        self._checks.clear()
        self.grown.clear()
        self.ordered.clear()
        self.begin_step(0, 0)

    def begin_step(self, proc: int, ordinal: int) -> None:
        """What follows is done by step `ordinal` of `proc` (numbers that are equal in every execution)."""
        names = self.names
        names.proc, names.ordinal, names.made, names.met = proc, ordinal, 0, 0
        if self._raw or self._later:
            self._drop()

    def _drop(self) -> None:
        """Forget what was recorded while no step ran."""
        self._raw = []
        self._later.clear()
        self._unsettled.clear()
        if not self._detail:
            self.put = self._raw.append

    def end_step(self) -> list[RawAccess]:
        """The step's accesses in order; the recorder keeps no reference to them."""
        if self._later:
            for add in self._later:
                add()
            self._later.clear()
        if self._checks:
            self._checks = [check for check in self._checks if check()]
        if self._unsettled:
            self._settle()
        names = self.names
        if names.young or names.old:
            names.end_step()
        raw = self._raw
        if not raw:
            return []
        following: list[RawAccess] = []
        self._raw = following
        if not self._detail:
            self.put = following.append
        persistent = names.persistent
        if persistent:
            self._persistent.update([(r[0], r[1]) for r in raw if r[2] & _CHANGES and r[0] in persistent])
        return raw

    @property
    def persistent_writes(self) -> set[str]:
        """Names of the locations written in this run whose object existed before it."""
        return {self.names.display(number, key) for number, key in self._persistent}

    def commuting(self, accesses: list[RawAccess]) -> None:
        """Make writes, in place, of the COMMUTES accesses of containers whose order was looked at in this run.

        Two tasks that add different keys change the same structure, but which of them came first shows only to who
        iterates (a dict keeps the order of insertion, a set's follows it where hashes collide). In an execution where
        nobody iterates, the two orders are the same execution ("observers": Aronis et al., TACAS 2018).
        """
        wrong = self.grown & self.ordered
        if wrong:
            for i, raw in enumerate(accesses):
                if raw[2] & COMMUTES and raw[0] in wrong:
                    accesses[i] = (*raw[:2], raw[2] ^ COMMUTES | WRITE, *raw[3:])

    # -- for hooks and for other modules

    def add(self, obj: Any, key: Hashable, mode: str, sync: bool = False) -> None:
        """Record an access on behalf of code that is not instrumented; mode "read", "write" or "update".

        The site is the innermost instrumented frame. Nothing is recorded while the recorder is not enabled.
        """
        if self.enabled:
            number = self.names.ids.get(id(obj)) or self.names.seen(obj)
            if key == "#" and isinstance(obj, collections.OrderedDict):
                self.ordered.add(number)  # the only one whose order is compared with that of other runs
            key = key if key == "#" else key_of(key, self.names)
            self.put((number, key, _MODE_BITS[mode] | (SYNC if sync else 0), _calling_site()))

    def add_sync(self, obj: Any, key: Hashable, mode: str) -> None:
        """Record an operation of a synchronization primitive: it orders, it does not race."""
        self.add(obj, key, mode, sync=True)

    def add_effects(self, obj: Any, effects: Iterable[tuple[str, str]], prefix: str = "") -> None:
        """As `add_sync` of each (key, mode) of `effects`; prefix: of the keys. They are names, so that "#" is none."""
        if self.enabled:
            number = self.names.ids.get(id(obj)) or self.names.seen(obj)
            site = _calling_site(4)  # its caller is the watch, called by a wrapper of asyncio's method
            put = self.put
            for key, mode in effects:
                put((number, prefix + key if prefix else key, _SYNC_BITS[mode], site))

    def add_waiter(self, task: Any) -> None:
        """The end of `task`'s wait is decided here (`chaossloth.loop.joins` records the other ways)."""
        if self.enabled:
            identity = self.names.identities[self.names.known(task)]
            if identity and identity[0] == "task":
                self.put((self.names.number(("waiter", identity[1])), "children", WRITE | SYNC, NO_SITE))

    def created(self, obj: Any) -> None:
        """Name `obj` as made by the running step; for objects that the subject gets from code of ours."""
        if self.enabled:
            self.names.created(obj)

    def later(self, add: Callable[[], None]) -> None:
        """Have `add` record at the end of this step what can only be known after the operation."""
        self._later.append(add)

    def at_each_step(self, check: Callable[[], bool]) -> None:
        """Call `check` at the end of this step and of every later one of the run, until it returns False.

        For changes that no operation of the subject's announces: an object that dies, a file that is closed with it.
        """
        self._checks.append(check)

    def last_site(self, other: int) -> int:
        """The site of the step's latest access: what a change that nobody announced most likely follows from."""
        return self._raw[-1][3] if self._raw else other

    def not_seen(self, what: str, site: int) -> None:
        place = SITES[site]
        self.unobservable.add(f"{what}: {place.file}:{place.line}")

    # -- reading

    def name_of(self, obj: Any) -> str | None:
        """The access path on which `obj` was first reached in this run ("RunBook._registry"); None when it has none."""
        path = self.names.paths.get(self.names.ids.get(id(obj), 0))
        return None if path is None else self.names.display(*path)

    def to_access(self, raw: RawAccess) -> Access:
        """One recorded access as evidence (call it before the next `start_run`)."""
        number, key, mode, site = raw[:4]
        place = SITES[site]
        own = Frame(place.file, place.line, place.function)
        return Access(
            location=self.names.location(number, key),
            name=self.names.display(number, key),
            mode="write" if mode & (COMMUTES | SYNC) == COMMUTES else _MODES.get(mode & UPDATE, "read"),
            stack=(own, *raw[5][1:]) if len(raw) > 4 else (own,),
            value=raw[4] if len(raw) > 4 else None,
            sync=bool(mode & SYNC),
        )

    # -- detail

    def _put_in_detail(self, raw: RawAccess) -> None:
        """Append `raw`; a hook may record several accesses of one operation, which all wait for it to be done."""
        if self._unsettled:
            waiting = [self._raw[i] for i in self._unsettled]
            if raw[3] != waiting[0][3] or any(raw[:2] == w[:2] for w in waiting):
                self._settle()
        value = None
        if raw[2] & _CHANGES:
            self._unsettled.append(len(self._raw))
        else:
            value = self._value(raw)
        self._raw.append((*raw, value, _subject_stack()))

    def _settle(self) -> None:
        for i in self._unsettled:
            raw = self._raw[i]
            self._raw[i] = (*raw[:4], self._value(raw), raw[5])
        self._unsettled.clear()

    def _value(self, raw: RawAccess) -> str | None:
        number, key, mode, _site = raw[:4]
        if mode & SYNC:
            return None
        cell = self.names.variable(number, key) if isinstance(key, str) else None
        if cell is not None:
            try:
                return short_text(cell.cell_contents)
            except ValueError:  # the variable is unbound
                return None
        identity = self.names.identities[number]
        owner = sys.modules.get(identity[1]) if identity[0] == "module" else self.names.object(number)
        return _text_at(owner, key)


def _text_at(owner: Any, key: Hashable) -> str | None:
    """Short text of what `owner` holds at `key`, without running any code of the subject."""
    if isinstance(owner, (dict, list, set)):
        if key == "#":
            return f"{len(owner)} items"
        if isinstance(owner, dict):
            return short_text(dict.__getitem__(owner, key)) if dict.__contains__(owner, key) else None
        if isinstance(owner, list):
            return short_text(list.__getitem__(owner, key)) if isinstance(key, int) and key < len(owner) else None
        return None
    if key == "#" or not isinstance(key, str):
        return None
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        found = {}
    if key in found:
        return short_text(found[key])
    for cls in type(owner).__mro__:
        held = cls.__dict__.get(key)
        if isinstance(held, types.MemberDescriptorType):
            try:
                return short_text(held.__get__(owner))
            except AttributeError:  # an unset slot
                return None
    return None


def short_text(value: Any, nested: bool = False) -> str:
    """repr of builtin scalars and small containers of them, else the type's name; never a user's `__repr__`."""
    kind = type(value)
    if kind in (int, float, bool, complex, type(None)):
        return repr(value)[:_MAX_TEXT]
    if kind in (str, bytes):
        return repr(value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + value[:0])
    if not nested and kind in (list, tuple, set, frozenset, dict):
        return _container_text(value, kind)
    return f"<{kind.__name__}>"


def _container_text(value: Any, kind: type) -> str:
    items = [*value.items()] if kind is dict else [*value]
    shown = items[:_MAX_ITEMS]
    if kind is dict:
        parts = [f"{short_text(k, True)}: {short_text(v, True)}" for k, v in shown]
    else:
        parts = [short_text(v, True) for v in shown]
        if kind in (set, frozenset):
            parts.sort()
    if len(items) > len(shown):
        parts.append("...")
    opening, closing = "[]" if kind is list else "()" if kind is tuple else "{}"
    return f"{opening}{', '.join(parts)}{closing}"


def _subject_stack() -> tuple[Frame, ...]:
    frames: list[Frame] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) < _MAX_STACK:
        code = frame.f_code
        if code.co_filename in FILES:
            frames.append(Frame(code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back
    return tuple(frames)


_calling_sites: dict[tuple[str, int, str], int] = {}


def _calling_site(depth: int = 2) -> int:
    """The innermost instrumented frame, looked for from the depth-th above this one."""
    frame: types.FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if code.co_filename in FILES:
            place = (code.co_filename, frame.f_lineno, code.co_qualname)
            number = _calling_sites.get(place)
            if number is None:
                number = _calling_sites[place] = add_site(Site(*place, "primitive"))
            return number
        frame = frame.f_back
    return NO_SITE


recorder = Recorder()
