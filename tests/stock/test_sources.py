"""Deterministic sources: what a run owns, what stays real, and that draws follow the task and not the interleaving."""

from __future__ import annotations

import datetime
import functools
import pickle
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chaossloth.errors import ToolError
from chaossloth.loop.virtual import EPOCH, TaskStream, install, sources
from tests.stock import programs

install()
install()  # the second call changes nothing
uniform = random.uniform  # what `from random import uniform` binds in a subject, which is imported after install()
early = random.Random()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.task: int | str = "0"

    def advance(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def run(seed: int = 1, **options: Any) -> Iterator[Clock]:
    clock = Clock()
    sources.enter(lambda: clock.now, clock.advance, seed, lambda: clock.task, **options)
    try:
        yield clock
    finally:
        sources.leave()


DRAWS: list[Callable[[], Any]] = [
    lambda: uniform(2, 3),
    lambda: random.uniform(0, 1),
    lambda: random.randint(1, 6),
    lambda: random.gauss(0, 1),
    lambda: random.sample(range(100), 5),
    lambda: random.choices("abc", k=4),
    lambda: random.randbytes(5),
    lambda: random.getrandbits(200),
    lambda: random.expovariate(2.0),
    lambda: random.Random().random(),
    lambda: random.SystemRandom().randrange(10**9),
    lambda: secrets.token_hex(8),
    lambda: secrets.choice(range(1000)),
    lambda: uuid.uuid1(),
    lambda: uuid.uuid4(),
]


def interleaved(order: str, seed: int) -> dict[str, list[Any]]:
    drawn: dict[str, list[Any]] = {}
    with run(seed) as clock:
        for task in order:
            clock.task = task
            drawn.setdefault(task, []).extend(draw() for draw in DRAWS)
    return drawn


def test_draws_depend_on_seed_task_and_count_alone() -> None:
    assert interleaved("aabb", 1) == interleaved("abba", 1)
    one, other = interleaved("ab", 1), interleaved("ab", 2)
    for number in range(len(DRAWS)):
        if number not in (2,):  # two throws of a die may agree
            assert one["a"][number] != other["a"][number]
            assert one["a"][number] != one["b"][number]


def test_a_stream_is_uniform_enough() -> None:
    stream = TaskStream()
    stream.begin(5, lambda: "t")
    values = [stream.random() for _ in range(4000)]
    assert all(0 <= value < 1 for value in values)
    assert 0.47 < sum(values) / len(values) < 0.53
    assert {stream.getrandbits(3) for _ in range(200)} == set(range(8))
    with pytest.raises(ValueError):
        stream.getrandbits(-1)


def test_seed_by_the_subject_switches_to_one_ordinary_stream() -> None:
    with run() as clock:
        random.seed(42)
        first = random.random()
        clock.task = "other"
        second = random.random()
        state = random.getstate()
        third = random.random()
        random.setstate(state)
        again = random.random()
        random.seed()
        own = random.random()
    reference = random.Random(42)
    assert [first, second, third] == [reference.random() for _ in range(3)]
    assert again == third
    with run() as clock:
        clock.task = "other"
        assert random.random() == own


def test_generators_made_at_import_are_seeded_again() -> None:
    with run(1):
        a = early.random()
    with run(1):
        b = early.random()
    with run(2):
        c = early.random()
    assert a == b != c
    early.seed(7)
    with run(1):
        assert early.random() == random.Random(7).random()


def test_generators_of_one_place_differ_from_each_other() -> None:
    several = [random.Random() for _ in range(3)]
    with run(1):
        assert len({each.random() for each in several}) == 3


def test_clocks_are_virtual_and_sleep_is_free() -> None:
    with run() as clock:
        time.sleep(1.5)
        assert (time.monotonic(), time.perf_counter(), time.process_time()) == (1.5, 1.5, 1.5)
        assert (time.time(), time.time_ns()) == (EPOCH + 1.5, int((EPOCH + 1.5) * 1e9))
        assert time.monotonic_ns() == 1_500_000_000
        moment = datetime.datetime.fromtimestamp(EPOCH + 1.5, datetime.UTC)
        assert datetime.datetime.now(datetime.UTC) == moment
        assert datetime.datetime.now() == datetime.datetime.fromtimestamp(EPOCH + 1.5)
        assert datetime.date.today() == datetime.date.fromtimestamp(EPOCH)
        assert time.strftime("%Y") == "2023" and time.gmtime().tm_year == 2023
        with pytest.raises(ValueError):
            time.sleep(-1)
        assert clock.now == 1.5
    assert {"time.sleep", "time.time", "datetime.now"} <= sources.touched
    assert abs(time.time() - EPOCH) > 1e6


def test_clocks_can_stay_real() -> None:
    with run(clocks=False):
        assert abs(time.time() - EPOCH) > 1e6
        first = random.random()
    with run():
        assert random.random() == first


def test_datetime_keeps_its_identity() -> None:
    class Stamp(datetime.datetime):
        pass

    @functools.singledispatch
    def kind(value: Any) -> str:
        return "other"

    @kind.register
    def _(value: datetime.datetime) -> str:
        return "moment"

    with run():
        now = datetime.datetime.now()
        assert type(now) is datetime.datetime and type(Stamp.now()) is Stamp
        assert kind(now) == "moment"
        assert pickle.loads(pickle.dumps(now)) == now


def test_other_threads_keep_the_real_thing_unless_they_belong_to_the_run() -> None:
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(time.time()))
    with run():
        thread.start()
        thread.join()
    assert abs(seen[0] - EPOCH) > 1e6
    sources.also_threads = lambda ident: True
    try:
        thread = threading.Thread(target=lambda: seen.append(time.time()))
        with run():
            thread.start()
            thread.join()
    finally:
        sources.also_threads = None
    assert seen[1] == EPOCH


def test_outside_of_runs_everything_is_real() -> None:
    assert len({random.random() for _ in range(5)}) == 5
    random.seed(3)
    assert random.random() == random.Random(3).random()
    random.seed()
    assert uuid.uuid4() != uuid.uuid4()


def test_a_seed_at_import_holds_for_each_run() -> None:
    random.seed(11)
    try:
        with run(1):
            first = random.random()
        with run(2):
            assert random.random() == first == random.Random(11).random()
    finally:
        random.seed()


def test_two_runs_at_once_are_a_fault() -> None:
    with run(), pytest.raises(ToolError):
        sources.enter(float, programs.nothing, 1, lambda: "0")
    assert not sources.active


def test_drawn_counts_this_run_only() -> None:
    with run():
        random.random()
        random.random()
    assert sources.drawn == 2
    with run():
        pass
    assert sources.drawn == 0 and sources.touched == set()
