"""Natural samples: judging, figures, early ends, the telemetry table."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chaossloth.boundary.telemetry import Telemetry, table
from chaossloth.evidence import as_json, wilson_interval
from chaossloth.natural import NaturalSample, overhead_of, sample
from tests.stock.programs import FILE, LOST_UPDATE, Scenario, is_subject


def sampled(source: str, runs: int = 3, kind: str = "async", limit_s: float = 5.0, **options: Any) -> NaturalSample:
    return sample(Scenario(source, kind), runs, is_subject=is_subject, step_limit_s=limit_s, **options)


def test_lost_update_with_random_sleeps() -> None:
    told: list[tuple[int, int]] = []
    result = sampled(LOST_UPDATE, 25, on_run=lambda done, failures: told.append((done, failures)))
    assert result.natural.runs == 25 and 1 <= result.natural.failures <= 24
    assert result.natural.ci95 == wilson_interval(result.natural.failures, 25)
    assert set(result.natural.messages) <= {"AssertionError: 5", "AssertionError: 10"}
    assert told[-1] == (25, result.natural.failures) and len(told) == 25
    assert {outcome.failure for outcome in result.outcomes} == {None, "assertion"}
    assert result.switches == (8,) * 25  # 2 of the main task, 3 of each giver
    columns = result.telemetry.columns
    assert columns == (f"{FILE}:6", f"{FILE}:24") and len(result.telemetry.rows) == 25
    assert result.telemetry.failed == tuple(not outcome.ok for outcome in result.outcomes)


@pytest.mark.parametrize(
    ("pairs", "overhead"),
    [
        ([(0.0202, 0.02), (0.0204, 0.02), (0.0206, 0.02)], 0.02),
        ([(0.0202, 0.02), (0.09, 0.02), (0.0206, 0.02), (0.0204, 0.02), (0.0206, 0.02)], 0.03),  # one outlier
        ([(0.00101, 0.001), (0.00102, 0.001), (0.00103, 0.001)], None),  # too short
        ([(0.018, 0.02), (0.02, 0.02), (0.023, 0.02)], None),  # the pairs do not agree
        ([(0.0202, 0.02), (0.0204, 0.02)], None),  # too few
        ([], None),
    ],
)
def test_overhead_is_told_only_where_the_pairs_agree(pairs: list[tuple[float, float]], overhead: float | None) -> None:
    assert overhead_of(pairs) == (None if overhead is None else pytest.approx(overhead))


def test_no_overhead_of_runs_that_are_short() -> None:
    assert sampled("async def scenario(): pass").natural.overhead is None


FAILURES = {
    "assertion": ("assertion", "async def scenario(): assert 1 == 2, 'sum'"),
    "exception": ("exception", "async def scenario(): raise OSError('gone')"),
    "deadlock": ("deadlock", "import asyncio\nasync def scenario(): await asyncio.Event().wait()"),
    "task that died": (
        "exception",
        "import asyncio\nasync def die(): raise KeyError('k')\n"
        "async def scenario(): t = asyncio.create_task(die()); await asyncio.sleep(0.001)",
    ),
    "task that died and is held": (
        "assertion",
        "import asyncio\nkeep = []\nasync def die(): assert False, 'held'\n"
        "async def scenario(): keep.append(asyncio.create_task(die())); await asyncio.sleep(0.001)",
    ),
    "callback": (
        "exception",
        "import asyncio\ndef bad(): raise LookupError('cb')\n"
        "async def scenario(): asyncio.get_running_loop().call_soon(bad); await asyncio.sleep(0.001)",
    ),
    "collected": (
        "leak",
        "import asyncio, gc\nasync def lost(): await asyncio.get_running_loop().create_future()\n"
        "async def scenario(): asyncio.create_task(lost()); await asyncio.sleep(0.001); gc.collect()",
    ),
}


@pytest.mark.parametrize(("failure", "source"), FAILURES.values(), ids=FAILURES.keys())
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_kinds_of_failure(failure: str, source: str, kind: str) -> None:
    source = f"import asyncio\n{source}\ndef test(): asyncio.run(scenario())\n"
    result = sampled(source, 2, kind)
    assert [outcome.failure for outcome in result.outcomes] == [failure] * 2
    assert result.natural.failures == 2


def test_a_dead_task_is_placed_at_its_line() -> None:
    _, source = FAILURES["task that died"]
    outcome = sampled(source, 1).outcomes[0]
    assert outcome.exception == "KeyError" and outcome.where is not None
    assert (outcome.where.file, outcome.where.line) == (FILE, 2)


PASSES = {
    "retrieved late": """
        import asyncio
        async def die(): raise KeyError
        async def scenario():
            t = asyncio.create_task(die()); await asyncio.sleep(0.001)
            assert isinstance(t.exception(), KeyError)
    """,
    "gathered": """
        import asyncio
        async def die(): raise KeyError
        async def scenario(): await asyncio.gather(die(), die(), return_exceptions=True)
    """,
    "dies while it is cancelled at the end": """
        import asyncio
        async def background():
            try: await asyncio.sleep(60)
            finally: raise KeyError
        async def scenario(): scenario.task = asyncio.create_task(background()); await asyncio.sleep(0)
    """,
    "collected when the main task's frame is gone": """
        import asyncio, gc
        class Owner: pass
        class Collects:
            def __del__(self): gc.collect()
        async def wait(owner): await asyncio.get_running_loop().create_future()
        async def scenario():
            owner = Owner()
            owner.task = asyncio.create_task(wait(owner))
            at_the_end = Collects()
            await asyncio.sleep(0)
    """,
}


@pytest.mark.parametrize("source", PASSES.values(), ids=PASSES.keys())
def test_what_is_no_failure(source: str) -> None:
    assert [outcome.ok for outcome in sampled(source, 2).outcomes] == [True, True]


def test_livelock() -> None:
    result = sampled("import asyncio\nasync def scenario():\n    while True: await asyncio.sleep(0)", 1, limit_s=0.1)
    assert [outcome.failure for outcome in result.outcomes] == ["livelock"]
    assert f"{FILE}:3" in result.outcomes[0].message


def test_a_run_that_waits_too_long_ends_the_sampling_and_is_not_counted() -> None:
    result = sampled("import asyncio\nasync def scenario(): await asyncio.sleep(60)", 5, limit_s=0.05)
    assert (result.natural.runs, result.natural.failures, result.natural.ci95) == (0, 0, (0.0, 1.0))
    assert result.natural.aborted is not None and f"{FILE}:2" in result.natural.aborted
    assert "0 of 5" in result.natural.aborted


def test_out_of_memory_ends_the_sampling() -> None:
    source = "made = []\nasync def scenario():\n    made.append(1)\n    if len(made) > 2: raise MemoryError\n"
    result = sampled(source, 5)
    assert result.natural.runs == 2 and result.natural.aborted == "a run ran out of memory (after 2 of 5 runs)"


def test_a_sync_test_that_runs_its_own_loop() -> None:
    source = LOST_UPDATE + "\n    def test(): asyncio.run(scenario())\n"
    result = sampled(source, 12, "sync")
    assert result.natural.runs == 12 and result.switches == (8,) * 12


def test_a_step_that_holds_the_loop_is_found() -> None:
    source = "import asyncio\nasync def scenario():\n    await asyncio.sleep(0)\n    for _ in range(9_000_000): pass\n"
    result = sampled(source, 1)
    assert result.longest_step_ms is not None and result.longest_step_ms > 50
    assert (FILE, 4) in {(entry.file, entry.line) for entry in result.starvation}


def test_no_run_at_all() -> None:
    result = sampled("async def scenario(): pass", 0)
    assert (result.natural.runs, result.natural.overhead, result.longest_step_ms) == (0, None, None)


def test_the_table() -> None:
    telemetry = table([{"a.py:10": 5.0, "a.py:9": 1.0}, {"a.py:9": 1.0, "b.py:1": 2.0}], [True, False])
    assert telemetry.columns == ("a.py:9", "a.py:10", "b.py:1")
    assert telemetry.column("a.py:9") == (1.0, 1.0)
    assert [math.isnan(cell) for cell in telemetry.column("a.py:10")] == [False, True]
    assert telemetry.varying().columns == ("a.py:10", "b.py:1")
    again = Telemetry.from_json(as_json(telemetry))
    assert as_json(again) == as_json(telemetry)
    values, failed = again.arrays()
    assert values.shape == (2, 3) and failed.tolist() == [True, False]
    assert table([], []).arrays()[0].shape == (0, 0)
    with pytest.raises(ValueError):
        table([{}], [])
