"""Deterministic sources: randomness, identifiers and clocks that a run can own.

`install()` replaces the sources once per process with dispatchers. A dispatcher calls the original unless a run is
active in the calling thread, so that other threads, natural runs and the tool itself keep the real thing. It has to
happen before the subject is imported: `from random import uniform` must bind the dispatcher.

Classes are patched in place, never replaced: `random.Random` keeps its identity (only `seed` without a value changes),
`SystemRandom` and `secrets` are reached through the module-level `_urandom`, and `datetime.now`/`utcnow` through the
type's own dictionary. A substitute class, even with `__instancecheck__`, would break `type(x) is datetime`, single
dispatch and the adapters of sqlite3 and pydantic.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import gc
import os
import random
import time
import uuid
from collections.abc import Callable
from typing import Any, cast

from chaossloth.errors import ToolError
from chaossloth.loop.streams import Sources, TaskStream, real_random_seed, real_sleep, sources

__all__ = [
    "EPOCH",
    "Sources",
    "TaskStream",
    "install",
    "real_monotonic",
    "real_monotonic_ns",
    "real_perf_counter_ns",
    "real_sleep",
    "sources",
]

EPOCH = 1_700_000_000  # what time.time() shows when a run starts: 2023-11-14 22:13:20 UTC

real_monotonic = time.monotonic
real_monotonic_ns = time.monotonic_ns
real_perf_counter_ns = time.perf_counter_ns
_real_localtime = time.localtime

_NODE = 0x02_00_00_00_00_01  # locally administered, so it is nobody's network card
_DRAWS = (
    "betavariate",
    "binomialvariate",
    "choice",
    "choices",
    "expovariate",
    "gammavariate",
    "gauss",
    "getrandbits",
    "lognormvariate",
    "normalvariate",
    "paretovariate",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "shuffle",
    "triangular",
    "uniform",
    "vonmisesvariate",
    "weibullvariate",
)
_SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_installed = False


def install() -> None:
    """Put the dispatchers in place. Once per process, before the subject is imported; later calls do nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    _install_random()
    _install_entropy()
    _install_clocks()
    _install_datetime()


def _install_random() -> None:
    for name in _DRAWS:
        original = getattr(random, name, None)  # binomialvariate is new in 3.12
        if original is not None:
            setattr(random, name, _draw(name, original))
    real_module_seed, real_getstate, real_setstate = random.seed, random.getstate, random.setstate

    @functools.wraps(real_module_seed)
    def seed(*args: Any, **kwargs: Any) -> None:
        arguments = (args or (kwargs.get("a"),)) + ((kwargs["version"],) if "version" in kwargs else ())
        if not sources.seeded(arguments):
            real_module_seed(*args, **kwargs)

    @functools.wraps(real_getstate)
    def getstate() -> tuple[Any, ...]:
        return sources.state().getstate() if sources.generator("random.getstate") else real_getstate()

    @functools.wraps(real_setstate)
    def setstate(state: tuple[Any, ...]) -> None:
        if sources.generator("random.setstate"):
            sources.state().setstate(state)
        else:
            real_setstate(state)

    @functools.wraps(real_random_seed)
    def seed_method(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None:
            sources.unseeded(self)
        else:
            sources.forget(self)
            real_random_seed(self, a, version)

    random.seed, random.getstate, random.setstate = seed, getstate, setstate
    random.Random.seed = seed_method  # type: ignore[method-assign]


def _draw(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    label = f"random.{name}"

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        generator = sources.generator(label)
        return original(*args, **kwargs) if generator is None else getattr(generator, name)(*args, **kwargs)

    dispatch.__module__ = "random"
    dispatch.__qualname__ = name
    return dispatch


def _install_entropy() -> None:
    real_urandom, real_uuid1, real_uuid4 = os.urandom, uuid.uuid1, uuid.uuid4

    @functools.wraps(real_urandom)
    def urandom(size: int, /) -> bytes:
        stream = sources.entropy("os.urandom")
        return real_urandom(size) if stream is None else stream.randbytes(size)

    @functools.wraps(real_uuid1)
    def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        stream = sources.entropy("uuid.uuid1")
        if stream is None:
            return real_uuid1(node, clock_seq)
        sequence = stream.getrandbits(14) if clock_seq is None else clock_seq
        # The original keeps the last timestamp in a global that outlives the run, and may ask the system library.
        return _time_uuid(time.time_ns() // 100, _NODE if node is None else node, sequence)

    @functools.wraps(real_uuid4)
    def uuid4() -> uuid.UUID:
        stream = sources.entropy("uuid.uuid4")
        return real_uuid4() if stream is None else uuid.UUID(bytes=stream.randbytes(16), version=4)

    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]  # SystemRandom, and secrets through it
    uuid.uuid1, uuid.uuid4 = uuid1, uuid4


def _time_uuid(ticks: int, node: int, sequence: int) -> uuid.UUID:
    """RFC 4122, version 1: 100 ns intervals since 1582-10-15, clock sequence, node."""
    stamp = ticks + 0x01B21DD213814000
    fields = (
        stamp & 0xFFFFFFFF,
        (stamp >> 32) & 0xFFFF,
        (stamp >> 48) & 0x0FFF,
        (sequence >> 8) & 0x3F,
        sequence & 0xFF,
        node,
    )
    return uuid.UUID(fields=fields, version=1)


def _install_clocks() -> None:
    for name in _SECONDS:
        setattr(time, name, _seconds(name, getattr(time, name), EPOCH if name == "time" else 0))
        setattr(time, f"{name}_ns", _nanoseconds(name, getattr(time, f"{name}_ns"), EPOCH if name == "time" else 0))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _calendar(name, getattr(time, name)))
    for name, place in (("strftime", 1), ("asctime", 0)):
        setattr(time, name, _formatted(name, getattr(time, name), place))
    original = time.sleep

    @functools.wraps(original)
    def sleep(seconds: Any, /) -> None:
        if not sources.sleep(seconds):
            original(seconds)

    time.sleep = sleep


def _seconds(name: str, original: Callable[[], float], offset: int) -> Callable[[], float]:
    label = f"time.{name}"

    @functools.wraps(original)
    def dispatch() -> float:
        now = sources.clock(label)
        return original() if now is None else offset + now

    return dispatch


def _nanoseconds(name: str, original: Callable[[], int], offset: int) -> Callable[[], int]:
    label = f"time.{name}_ns"

    @functools.wraps(original)
    def dispatch() -> int:
        now = sources.clock(label)
        return original() if now is None else offset * 1_000_000_000 + round(now * 1e9)

    return dispatch


def _calendar(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    label = f"time.{name}"

    @functools.wraps(original)
    def dispatch(seconds: float | None = None, /) -> Any:
        now = sources.clock(label) if seconds is None else None
        return original(seconds) if now is None else original(EPOCH + now)

    return dispatch


def _formatted(name: str, original: Callable[..., str], place: int) -> Callable[..., str]:
    """strftime and asctime: without a time tuple (argument number `place`) they show the present."""
    label = f"time.{name}"

    @functools.wraps(original)
    def dispatch(*args: Any) -> str:
        now = sources.clock(label) if len(args) == place else None
        return original(*args) if now is None else original(*args, _real_localtime(EPOCH + now))

    return dispatch


def _install_datetime() -> None:
    """`now` and `utcnow` in the type's own dictionary (`today` asks `time.time` already).

    The dictionary of a C type is reached through the garbage collector; PyType_Modified then drops the cached lookups.
    """
    members = gc.get_referents(datetime.datetime.__dict__)[0]
    if not isinstance(members, dict):
        raise ToolError("this interpreter hides the dictionary of datetime.datetime: datetime.now() cannot be virtual")
    real_now, real_utcnow = members["now"], members["utcnow"]

    def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
        seconds = sources.clock("datetime.now")
        if seconds is None:
            return cast(datetime.datetime, real_now.__get__(None, cls)(tz))
        return cls.fromtimestamp(EPOCH + seconds, tz)

    def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
        seconds = sources.clock("datetime.utcnow")
        if seconds is None:
            return cast(datetime.datetime, real_utcnow.__get__(None, cls)())
        return cls.fromtimestamp(EPOCH + seconds, datetime.UTC).replace(tzinfo=None)

    for function, original in ((now, real_now), (utcnow, real_utcnow)):
        function.__qualname__ = f"datetime.{function.__name__}"
        function.__doc__ = original.__doc__
        members[function.__name__] = classmethod(function)
    modified = ctypes.pythonapi.PyType_Modified
    modified.argtypes = [ctypes.py_object]
    modified.restype = None
    modified(datetime.datetime)
