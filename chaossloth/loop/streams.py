"""What a run draws from: one counter per task, the run's clock, and the generators that it has to seed again.

* A draw is a function of (seed, task, n-th draw of that task) and not of one shared stream: with a shared stream the
  values would move with the interleaving, and a schedule could not be replayed after one swap. The generator is
  splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): a stream is one
  integer.
* `random.seed(x)` asks for one shared stream, so the run gets one; then values do follow the interleaving, as they
  would on the user's machine.
* Instances of `random.Random` without a seed that were made while no run was active (typically at import of the
  subject) are seeded again at the start of each run.

The functions of `random`, `time`, ... reach this through the dispatchers of `virtual`.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple

from chaossloth.errors import ToolError

__all__ = ["Sources", "TaskStream", "real_random_seed", "real_sleep", "sources"]

real_sleep = time.sleep
real_random_seed = random.Random.seed

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_DISPATCHERS = str(Path(__file__).with_name("virtual.py"))


def _derive(*parts: object) -> int:
    """64 bits that depend on nothing but the parts (unlike hash(), which is salted per process)."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class TaskStream(random.Random):
    """A `random.Random` whose every draw is a function of (seed, current task, n-th draw of that task).

    One object serves all tasks: it keeps one integer per task, so that a task that draws costs a dictionary entry.
    """

    def __init__(self) -> None:
        self.drawn = 0
        self._key: Callable[[], Hashable] = int
        self._run_seed = 0
        self._states: dict[Hashable, int] = {}
        super().__init__(0)

    def begin(self, seed: int, task_key: Callable[[], Hashable]) -> None:
        """Forget everything drawn; the next draw of each task is its first."""
        self.drawn = 0
        self._key = task_key
        self._run_seed = seed
        if self._states:
            self._states = {}

    def _next(self) -> int:
        key = self._key()
        state = self._states.get(key)
        if state is None:
            state = _derive(self._run_seed, key)
        self._states[key] = z = (state + _GOLDEN) & _MASK
        self.drawn += 1
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def random(self) -> float:
        """A float in [0, 1) with 53 random bits."""
        return (self._next() >> 11) * 2.0**-53

    def getrandbits(self, k: int, /) -> int:
        """An int of k random bits."""
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        value = 0
        for shift in range(0, k, 64):
            value |= self._next() << shift
        return value & ((1 << k) - 1)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """As the base class, without the second value that it keeps: that one would cross from task to task."""
        self.gauss_next: Any = None
        return super().gauss(mu, sigma)

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """A task stream is seeded by `begin` only."""


class _Unseeded(NamedTuple):
    """A generator made without a seed outside of runs: named by where it was made and as which one of that place.

    Neither the order among all generators nor an address would do: the subject may be loaded again between two runs.
    """

    ref: weakref.ref[random.Random]
    site: str
    namespace: int
    number: int


def _caller() -> tuple[str, int]:
    """Place outside of `random` that made a generator, and the identity of the module namespace it runs in."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in (_DISPATCHERS, __file__, random.__file__):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", id(frame.f_globals)


class Sources:
    """What the active run draws from. One run at a time; see the module's docstring for the rules.

    drawn:   number of elementary draws in this run.
    touched: names of the sources that were used in this run, e.g. "random.uniform", "time.time", "os.urandom".
    also_threads: predicate on a thread identifier: other threads that belong to the run (its worker threads).
    """

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self.also_threads: Callable[[int], bool] | None = None
        self.stream = TaskStream()
        self.shared: random.Random | None = None
        self._shared_drawn = 0
        self._thread: int | None = None
        self._clocks = False
        self._now: Callable[[], float] = float
        self._advance: Callable[[float], None] = real_sleep
        self._seed = 0
        self._unseeded: list[_Unseeded] = []
        self._import_seed: tuple[Any, ...] | None = None

    @property
    def drawn(self) -> int:
        return self.stream.drawn + self._shared_drawn

    @property
    def active(self) -> bool:
        """True while a run is entered (in whichever thread)."""
        return self._thread is not None

    def enter(
        self,
        now: Callable[[], float],
        advance: Callable[[float], None],
        seed: int,
        task_key: Callable[[], int | str],
        *,
        clocks: bool = True,
    ) -> None:
        """Start a run in the calling thread.

        now:      the run's virtual time in seconds from its start.
        advance:  called with seconds by `time.sleep`.
        task_key: stable identity of the task that is running.
        clocks:   False leaves clocks and `time.sleep` real (forcing on the stock loop); draws are still owned.

        Raises ToolError when a run is active already.
        """
        if self._thread is not None:
            raise ToolError("the deterministic sources are already in use by another run")
        self._now, self._advance, self._clocks, self._seed = now, advance, clocks, seed
        if self.touched:
            self.touched = set()
        self._shared_drawn = 0
        self.stream.begin(seed, task_key)
        self.shared = random.Random(*self._import_seed) if self._import_seed is not None else None
        if self._unseeded:
            self._seed_again()
        self._thread = threading.get_ident()

    def leave(self) -> None:
        """End the run; `drawn` and `touched` stay readable. Harmless when no run is active."""
        self._thread = None
        self.shared = None

    def _seed_again(self) -> None:
        self._unseeded = [entry for entry in self._unseeded if entry.ref() is not None]
        for entry in self._unseeded:
            generator = entry.ref()
            if generator is not None:
                real_random_seed(generator, _derive(self._seed, entry.site, entry.number))

    def here(self) -> bool:
        """True when the calling thread belongs to the active run."""
        thread = self._thread
        if thread is None:
            return False
        current = threading.get_ident()
        return current == thread or (self.also_threads is not None and self.also_threads(current))

    def clock(self, name: str) -> float | None:
        """Virtual seconds for the calling thread, None when it reads the real clock."""
        if not self._clocks or not self.here():
            return None
        self.touched.add(name)
        return self._now()

    def sleep(self, seconds: float) -> bool:
        """True when the sleep was virtual and is over."""
        if not self._clocks or not self.here():
            return False
        self.touched.add("time.sleep")
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._advance(seconds)
        return True

    def generator(self, name: str) -> random.Random | None:
        """What a module-level function of `random` draws from here, None for the real one."""
        if not self.here():
            return None
        self.touched.add(name)
        if self.shared is not None:
            self._shared_drawn += 1
            return self.shared
        return self.stream

    def entropy(self, name: str) -> TaskStream | None:
        """What stands for the operating system's entropy here, None for the real one (never the shared stream)."""
        if not self.here():
            return None
        self.touched.add(name)
        return self.stream

    def seeded(self, arguments: tuple[Any, ...]) -> bool:
        """`random.seed(*arguments)` was called; True when the run took it. No value means entropy: nothing changes."""
        explicit = bool(arguments) and arguments[0] is not None
        if self.here():
            self.touched.add("random.seed")
            self.shared = random.Random(*arguments[:1]) if explicit else None
            if self.shared is not None and len(arguments) > 1:
                real_random_seed(self.shared, *arguments)
            return True
        self._import_seed = arguments[:1] if explicit else None
        return False

    def state(self) -> random.Random:
        """The shared stream, made from the run's seed when there is none yet (for getstate and setstate)."""
        if self.shared is None:
            self.shared = random.Random(_derive(self._seed, "shared"))
        return self.shared

    def unseeded(self, generator: random.Random) -> None:
        """A generator was seeded from entropy: from the run's when in a run, else again at each start of a run."""
        if self.here():
            self.touched.add("random.Random")
            real_random_seed(generator, self.stream.getrandbits(64))
            return
        real_random_seed(generator)
        self.forget(generator)
        site, namespace = _caller()
        index = sum(e.site == site and e.namespace == namespace and e.ref() is not None for e in self._unseeded)
        self._unseeded.append(_Unseeded(weakref.ref(generator), site, namespace, index))

    def forget(self, generator: random.Random) -> None:
        """A generator got a seed of its own: the next run leaves it alone."""
        if self._unseeded:
            self._unseeded = [entry for entry in self._unseeded if entry.ref() is not generator]


sources = Sources()
