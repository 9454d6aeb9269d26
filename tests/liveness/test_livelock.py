"""The repeating part of an execution whose steps ran out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from chaossloth.evidence import Frame
from chaossloth.liveness import detect_livelock


def _at(task: str, line: int) -> tuple[str, Frame]:
    return task, Frame("/subject/buggy.py", line, "spin")


def test_two_tasks_that_give_way_to_each_other() -> None:
    positions = [_at("A", 1), _at("B", 2), *[_at("B", 9), _at("A", 8)] * 40]
    assert detect_livelock(positions) == "A at buggy.py:8 (spin) → B at buggy.py:9 (spin), 40 times"


def test_the_period_that_explains_most_is_taken() -> None:
    part = [_at("A", 1), _at("B", 2), _at("C", 3), _at("C", 3), _at("C", 3)]
    found = detect_livelock(part * 10)
    assert found is not None
    assert found.endswith(", 10 times")
    assert found.count("→") == 4


def test_a_position_that_is_not_known_shows_the_task_alone() -> None:
    assert detect_livelock([("A", Frame("", 0, "k"))] * 5) == "A, 5 times"


def test_nothing_repeats() -> None:
    assert detect_livelock([]) is None
    assert detect_livelock([_at("A", line) for line in range(300)]) is None
    assert detect_livelock([_at("A", 1), _at("A", 1)]) is None


@settings(max_examples=60, deadline=None)
@given(
    part=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    before=st.lists(st.integers(4, 9), max_size=6),
    times=st.integers(3, 8),
)
def test_a_repeated_tail_is_always_found(part: list[int], before: list[int], times: int) -> None:
    found = detect_livelock([_at("A", line) for line in before + part * times])
    assert found is not None
    assert int(found.rpartition(", ")[2].split()[0]) >= times
