"""Ends of runs: what counts as a failure, what is only told, and how far left-over tasks are followed."""

from __future__ import annotations

import gc
import re
from time import perf_counter

import pytest

from chaossloth.evidence import Label
from chaossloth.explore.execute import Execution
from chaossloth.explore.schedule import Schedule
from chaossloth.explore.search import Limits, Search
from chaossloth.loop.ends import CLEAN_UP_STEPS, RUN_ON_STEPS
from chaossloth.natural import sample
from tests.liveness.controlled import executor, once
from tests.stock.programs import FILE, Scenario, is_subject


def _ended(execution: Execution) -> tuple[str | None, str, int | None]:
    where = execution.outcome.where
    return execution.outcome.failure, execution.outcome.message, where and where.line


def _naturally(source: str) -> tuple[str | None, str, int | None]:
    """How one natural run of the same `main` ends."""
    (outcome,) = sample(
        Scenario(source.replace("def main()", "def scenario()")), 1, is_subject=is_subject, step_limit_s=20.0
    ).outcomes
    assert outcome.where is None or outcome.where.file == FILE
    return outcome.failure, outcome.message, outcome.where and outcome.where.line


# -- coroutines that were never awaited --------------------------------------------------------------------------------

NEVER = {
    "dropped at once": ("    log.write('x')", "Log.write"),
    "dropped with its frame": ("    kept = log.write('x')", "Log.write"),
    "overwritten": ("    kept = log.write('x'); kept = None", "Log.write"),
    "of the library, by the subject": ("    asyncio.sleep(1)", "sleep"),
    "in a gather's place": ("    [log.write('x') for _ in range(1)]", "Log.write"),
}
LOG = """import asyncio

class Log:
    def __init__(self):
        self.lines = []

    async def write(self, line):
        self.lines.append(line)

async def main():
    log = Log()
{body}
    await asyncio.sleep(0)
"""


@pytest.mark.parametrize("name", NEVER)
def test_a_coroutine_that_is_never_awaited_is_named_with_its_line(name: str) -> None:
    body, coroutine = NEVER[name]
    expected = ("leak", f"coroutine {coroutine} was created and never awaited", 12)
    source = LOG.format(body=body)
    assert _ended(once(source)) == expected
    assert _naturally(source) == expected


KEPT = LOG.format(body="    log.kept = log.write('x')")


def test_one_that_is_still_referenced_at_the_end_is_found_without_the_collector() -> None:
    """The object holds the coroutine, the coroutine the object: only a collection would tell the interpreter."""
    expected = ("leak", "coroutine Log.write was created and never awaited", 12)
    with executor(KEPT) as made:
        gc.disable()
        try:
            runs = [made.replay(Schedule("stock", 0, ())) for _ in range(6)]
        finally:
            gc.enable()
    assert [_ended(run) for run in runs] == [expected] * 6
    assert len({run.schedule.check for run in runs}) == 1


@pytest.mark.parametrize(
    "body",
    [
        "    log.write('x').close()",
        "    await log.write('x')",
        "    await asyncio.gather(log.write('x'), log.write('y'))",
        "    asyncio.create_task(log.write('x')).cancel()",
        "    later = log.write('x'); await later",
        "    asyncio.get_running_loop().call_soon(asyncio.ensure_future, log.write('x'))",
        "    tasks = [asyncio.ensure_future(log.write('x'))]",
    ],
)
def test_coroutines_that_are_looked_after(body: str) -> None:
    source = LOG.format(body=body)
    assert _ended(once(source)) == (None, "", None)
    assert _naturally(source) == (None, "", None)


def test_a_task_that_the_end_cuts_off_before_its_first_step_is_no_forgotten_coroutine() -> None:
    assert _ended(
        once(LOG.replace("    await asyncio.sleep(0)\n", "").format(body="    t = asyncio.create_task(log.write('x'))"))
    ) == (
        None,
        "",
        None,
    )


@pytest.mark.parametrize("label", ["stock", "latency", "reorder"])
def test_a_coroutine_that_a_ready_callback_still_holds_at_the_end_is_not_forgotten(label: Label) -> None:
    """`asyncio.run` turns the loop once more: the callback runs there."""
    body = "    asyncio.get_running_loop().call_soon(asyncio.ensure_future, log.write('x'))"
    source = LOG.replace("    await asyncio.sleep(0)\n", "").format(body=body)
    with executor(source) as made:
        result = Search(made, label, 0).run(Limits(50, perf_counter() + 20))
    assert result.failure is None, result.failure.outcome
    assert _naturally(source) == (None, "", None)


def test_a_failure_of_the_program_comes_first() -> None:
    source = LOG.format(body="    log.write('x'); assert not log.lines.append(1) and 0, 'own'")
    assert _ended(once(source))[:2] == ("assertion", "own")


def test_the_interpreters_own_warning_is_back_afterwards() -> None:
    once(LOG.format(body="    log.write('x')"))

    async def forgotten() -> None:
        pass

    with pytest.warns(RuntimeWarning, match="never awaited"):
        forgotten()


# -- tasks that are left -----------------------------------------------------------------------------------------------

HEARTBEAT = """
import asyncio

async def heartbeat():
    while True:
        await asyncio.sleep({pause})

async def main():
    task = asyncio.create_task(heartbeat())
    await asyncio.sleep(0.001)
"""


def test_a_background_task_is_told_and_not_failed() -> None:
    execution = once(HEARTBEAT.format(pause=10))
    assert execution.outcome.ok
    (left,) = execution.left
    assert re.fullmatch(r"task heartbeat at engine_subject\d+\.py:3", left)
    assert _naturally(HEARTBEAT.format(pause=10)) == (None, "", None)


@pytest.mark.parametrize("pause", [10, 0.3, 0])
def test_one_that_goes_on_for_ever_is_followed_up_to_a_cap(pause: float) -> None:
    with executor(HEARTBEAT.format(pause=pause)) as made:
        execution = made.replay(Schedule("stock", 0, ()))
        assert execution.run.capped
        assert execution.outcome.ok, execution.outcome
        assert execution.run.count < len(execution.run.order) + RUN_ON_STEPS + 150
        result = Search(made, "stock", 0).run(Limits(50, perf_counter() + 60))
    assert result.failure is None
    assert (result.capped, result.exhausted) == (True, False)


LATE = """
import asyncio

class Box:
    value = 0

async def writer(box):
    await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    box.value = 1

async def main():
    box = Box()
    box.value = 0
    task = asyncio.create_task(writer(box))
    await asyncio.sleep(0)
    assert box.value == 0
"""


def test_an_access_that_comes_too_late_is_recorded_and_decides_nothing() -> None:
    execution = once(LATE)
    assert execution.outcome.ok
    assert not execution.run.capped
    judged = len(execution.run.order)
    assert execution.run.count > judged
    after = [step for step in execution.run.steps[judged:] if step.proc.name == "writer"]
    assert any(step.accesses for step in after)


REFUSES = """
import asyncio

async def hang():
    try:
        await asyncio.sleep(10)
    finally:
        await asyncio.Event().wait()

async def main():
    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
"""


def test_a_task_that_waits_for_ever_after_it_was_cancelled_is_a_leak() -> None:
    expected = ("leak", "task hang was cancelled at the end and waits for ever", 7)
    assert _ended(once(REFUSES)) == expected
    assert _naturally(REFUSES[1:]) == expected


SWALLOWS = """
import asyncio

async def stubborn():
    for _ in range(100_000):  # not for ever: at exit, when `asyncio` is gone already, nothing would end it
        try:
            await asyncio.sleep(1)
        except {what}:
            pass

async def main():
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
"""


def test_a_task_that_swallows_its_cancellation_is_a_leak() -> None:
    execution = once(SWALLOWS.format(what="asyncio.CancelledError"))
    sentence = f"task stubborn was cancelled at the end and still runs {CLEAN_UP_STEPS} steps later"
    assert _ended(execution) == ("leak", sentence, 6)


def test_a_coroutine_that_refuses_to_be_closed_is_said() -> None:
    execution = once(SWALLOWS.format(what="BaseException"))
    assert execution.outcome.failure == "leak"
    assert execution.outcome.message.endswith(
        "steps later; closing it raised RuntimeError: coroutine ignored GeneratorExit"
    )


# -- asynchronous generators -------------------------------------------------------------------------------------------

NUMBERS = """
import asyncio

async def numbers(log):
    try:
        for n in range(10):
            await asyncio.sleep(0)
            yield n
    finally:
        await asyncio.sleep(0)
        log.append("closed")
        {end}

async def main():
    log = []
    {use}
    return log
"""
BREAK = "async for n in numbers(log):\n        if n == 2: break"


def test_an_unfinished_generator_is_told_and_closed() -> None:
    with executor(NUMBERS.format(end="pass", use=BREAK)) as made:
        execution = made.replay(Schedule("stock", 0, ()))
        log = made.last_result
    assert execution.outcome.ok
    assert log == ["closed"]
    assert [re.sub(r"engine_subject\d+", "m", left) for left in execution.left] == [
        "asynchronous generator numbers at m.py:3"
    ]


def test_one_that_is_still_referenced_is_closed_at_the_end() -> None:
    source = NUMBERS.format(end="pass", use="log.append(numbers(log)); await anext(log[0])")
    with executor(source) as made:
        execution = made.replay(Schedule("stock", 0, ()))
        log = made.last_result
    assert log[1:] == ["closed"]
    assert len(execution.left) == 1


@pytest.mark.parametrize(
    "use",
    [
        "async for n in numbers(log): pass",
        "generator = numbers(log); await anext(generator); await generator.aclose()",
        "generator = numbers(log)",
    ],
)
def test_a_finished_or_unstarted_generator_is_nothing_to_tell(use: str) -> None:
    execution = once(NUMBERS.format(end="pass", use=use))
    assert (execution.outcome.ok, execution.left) == (True, frozenset())


def test_an_error_while_a_generator_is_closed_is_not_lost() -> None:
    source = NUMBERS.format(end="raise ValueError('late')", use="log.append(numbers(log)); await anext(log[0])")
    problems = once(source).run.problems
    assert [str(problem["exception"]) for problem in problems] == ["late"]
    assert "closing of asynchronous generator" in problems[0]["message"]


# -- steps that run out ------------------------------------------------------------------------------------------------

SPIN = """
import asyncio

async def wait_for(state):
    while not state["go"]:
        await asyncio.sleep(0)

async def main():
    state = {"go": False}
    await asyncio.gather(wait_for(state), wait_for(state))
"""


@pytest.mark.parametrize("label", ["stock", "latency"])
def test_steps_that_run_out_in_a_fair_order_are_a_livelock(label: Label) -> None:
    with executor(SPIN) as made:
        made.max_steps = 400
        execution = made.replay(Schedule(label, 0, ()))
    assert execution.failed
    assert execution.outcome.failure == "livelock"
    assert re.search(
        r"it repeats: wait_for #1 at \S+:5 \(wait_for\) → wait_for #2 at \S+:5 \(wait_for\), \d+ times",
        execution.outcome.message,
    )


def test_steps_that_run_out_in_reorder_say_nothing() -> None:
    """An unfair order can spin for ever: such an execution bounds the search, and fails nothing."""
    with executor(SPIN) as made:
        made.max_steps = 400
        execution = made.replay(Schedule("reorder", 0, ()))
        result = Search(made, "reorder", 0).run(Limits(6, perf_counter() + 60))
    assert (execution.truncated, execution.failed) == (True, False)
    assert (result.failure, result.truncated, result.exhausted) == (None, result.executions, False)


POLLS = """
import asyncio

async def poll(done):
    while not done:
        await asyncio.sleep(0)

async def main():
    done = []
    task = asyncio.create_task(poll(done))
    {wait}
    done.append(1)
    await task
"""


@pytest.mark.parametrize("wait", ["await asyncio.sleep(0.5)", "await asyncio.to_thread(len, [])"])
@pytest.mark.parametrize("label", ["stock", "latency"])
def test_a_program_that_polls_while_it_waits_is_no_livelock(label: Label, wait: str) -> None:
    """Steps take time on a real loop, so that the timer comes; under control it has to come as well."""
    with executor(POLLS.format(wait=wait)) as made:
        execution = made.replay(Schedule(label, 0, ()))
        again = made.replay(execution.schedule)
    assert execution.outcome.ok, execution.outcome
    assert again.schedule.check == execution.schedule.check
    assert _naturally(POLLS.format(wait=wait).replace("0.5", "0.01")) == (None, "", None)
