"""Each kind of fault is found at its line and named; the fixed form passes every execution."""

from __future__ import annotations

import pytest

from tests.cancellation.programs import PROGRAMS, line_of
from tests.cancellation.support import explained, failure_of, swept, watched

NAMES = sorted(PROGRAMS)


@pytest.mark.parametrize("name", NAMES)
def test_found_named_and_reproduced(name: str) -> None:
    subject = PROGRAMS[name]
    executor, result = swept(subject.buggy, subject.victims, double=subject.double)
    failure = failure_of(result)
    assert failure.schedule.label == "stock"
    assert result.base is None
    found, pattern, explanation, _ = explained(executor, failure)
    at = found.cancellations[-1].at
    assert at is not None
    assert f":{line_of(subject.buggy)} " in explanation
    assert pattern == subject.pattern
    assert found.verified == (
        f"with this {found.cancellations[-1].kind.replace('cancel', 'cancellation')} it fails 3/3; "
        "the same order without it passes 3/3"
    )
    with watched(executor):
        again = [executor.replay(failure.schedule, strict=True) for _ in range(20)]
    assert {each.schedule.token for each in again} == {failure.schedule.token}
    assert {each.outcome.key() for each in again} == {failure.outcome.key()}


@pytest.mark.parametrize("name", NAMES)
def test_fixed_form_is_clean(name: str) -> None:
    subject = PROGRAMS[name]
    _, result = swept(subject.correct, subject.victims, double=subject.double)
    assert result.failure is None, failure_of(result).outcome
    assert result.landed > 0
    assert result.results["stock"].executions < 400  # nothing was left to execute


@pytest.mark.parametrize("name", [n for n in NAMES if PROGRAMS[n].double])
def test_a_second_cancellation_is_needed(name: str) -> None:
    subject = PROGRAMS[name]
    _, once = swept(subject.buggy, subject.victims)
    assert once.failure is None
    assert once.results["stock"].executions < 400  # nothing was left to execute
    _, twice = swept(subject.buggy, subject.victims, double=True)
    first, second = failure_of(twice).schedule.cancels
    assert first.victim == second.victim
    assert first.step < second.step
