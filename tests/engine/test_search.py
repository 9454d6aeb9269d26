"""The search against brute force: the same set of outcomes, the same count where it can be computed, honest words."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaossloth.errors import UsageError
from chaossloth.explore.minimise import minimise
from chaossloth.explore.schedule import Schedule, parse_token
from chaossloth.explore.search import Limits, Search
from chaossloth.explore.strategy import Deviate, Guided, Sequential
from chaossloth.loop.run import Model
from tests.engine.support import executor_of, explored, late_lost_update

# A program is a list of tasks; a task is a list of operations on x and a log: "r" read x into a register, "w" write
# register + 1 to x, "a"/"b" append to the log, "." yield once.
Program = tuple[tuple[str, ...], ...]


def outcomes_by_brute_force(program: Program) -> set[Any]:
    """All outcomes of all interleavings of the tasks' steps, by recursion over a model of its own; no event loop."""
    seen: set[Any] = set()

    def step(state: tuple[Any, ...], task: int) -> tuple[Any, ...]:
        x, log, registers, positions = state
        registers, positions = list(registers), list(positions)
        at = positions[task]
        operations = program[task]
        while at < len(operations):
            operation = operations[at]
            at += 1
            if operation == ".":
                break
            if operation == "r":
                registers[task] = x
            elif operation == "w":
                x = registers[task] + 1
            else:
                log = (*log, f"{operation}{task}")
        else:
            at = len(operations) + 1  # returned
        positions[task] = at
        return x, log, tuple(registers), tuple(positions)

    def recurse(state: tuple[Any, ...]) -> None:
        running = [t for t, at in enumerate(state[3]) if at <= len(program[t])]
        if not running:
            seen.add(state[:2])
        for task in running:
            recurse(step(state, task))

    recurse((0, (), (0,) * len(program), (0,) * len(program)))
    return seen


def as_coroutine(program: Program) -> Any:
    async def main() -> tuple[int, tuple[str, ...]]:
        x = 0
        log: list[str] = []

        async def run(number: int, operations: tuple[str, ...]) -> None:
            nonlocal x
            register = 0
            for operation in operations:
                if operation == ".":
                    await asyncio.sleep(0)
                elif operation == "r":
                    register = x
                elif operation == "w":
                    x = register + 1
                else:
                    log.append(f"{operation}{number}")

        tasks = [asyncio.create_task(run(n, operations)) for n, operations in enumerate(program)]
        for task in tasks:
            await task
        return x, tuple(log)

    return main


def outcomes_by_search(program: Program) -> tuple[set[Any], bool]:
    executor = executor_of(as_coroutine(program))
    search = Search(executor, "reorder", 0)
    search._model = Model("reorder", bypass_bound=10**6)
    result = search.run(Limits(200_000, perf_counter() + 60), stop=lambda _: False)
    return set(executor.program.results), result.exhausted  # type: ignore[attr-defined]


def with_few_yields(program: Program) -> Program:
    """At most 4 yields with two tasks, 2 with three: up to 1,700 interleavings of the tasks and of who waits."""
    left = 4 if len(program) == 2 else 2
    cut = []
    for task in program:
        kept = []
        for operation in task:
            left -= operation == "."
            if operation != "." or left >= 0:
                kept.append(operation)
        cut.append(tuple(kept))
    return tuple(cut)


operations = st.lists(st.sampled_from(["r", "w", "a", "b", ".", "."]), min_size=1, max_size=4).map(tuple)
programs = st.lists(operations, min_size=2, max_size=3).map(tuple).map(with_few_yields)


@settings(max_examples=25, deadline=None)
@example((("r", ".", "w"), ("r", ".", "w"), ("r", ".", "w")))
@example(((".", ".", "r", ".", "w"), ("r", "w", "a")))
@given(programs)
def test_reorder_finds_exactly_the_outcomes_of_brute_force(program: Program) -> None:
    found, exhausted = outcomes_by_search(program)
    assert exhausted
    assert found == outcomes_by_brute_force(program)


def test_fifo_only_program_is_settled_by_one_stock_execution() -> None:
    result = explored(as_coroutine((("r", ".", "w"), (".", ".", ".", "r", ".", "w"))), "stock")
    assert (result.executions, result.exhausted, result.failures) == (1, True, 0)


def test_shallow_bug_is_found_with_its_least_label_and_minimal_schedule() -> None:
    assert explored(late_lost_update, "stock").exhausted
    executor = executor_of(late_lost_update)
    search = Search(executor, "latency", 0)
    found = search.run(Limits(500, perf_counter() + 60)).failure
    assert found is not None
    best, _ = minimise(executor, found, perf_counter() + 60)
    # One yield that takes time is not enough: its completion has to be held back at the boundaries that follow.
    assert 1 <= len(best.schedule.deviations) <= 5
    assert all(executor.replay(best.schedule).failed for _ in range(20))


def test_replay_of_a_token_takes_the_same_path_in_a_new_executor() -> None:
    found = explored(late_lost_update, "reorder", 500, stop_at_failure=True).failure
    assert found is not None
    schedule = parse_token(found.schedule.token)
    assert schedule == found.schedule
    again = executor_of(late_lost_update).replay(schedule, strict=True)
    assert again.failed
    assert again.schedule.check == found.schedule.check


def test_a_schedule_of_another_program_does_not_replay() -> None:
    executor = executor_of(late_lost_update)
    execution = executor.replay(Schedule("reorder", 0, ((0, 35),), "000"), strict=True)
    assert execution.run.ended is not None
    assert execution.run.ended.kind == "diverged"
    assert "has" in execution.run.ended.detail


@pytest.mark.parametrize("token", ["", "x0:1", "s0", "s0-1:2", "r0-5.1-3.1:abc", "s0:ABC", "s0:1 -- 2"])
def test_broken_tokens_are_refused_with_a_sentence(token: str) -> None:
    with pytest.raises(UsageError, match="no replay token"):
        parse_token(token)


@given(
    st.sampled_from(["stock", "latency", "reorder"]),
    st.integers(0, 10**9),
    st.dictionaries(st.integers(0, 5000), st.integers(1, 40), max_size=12),
)
def test_tokens_round_trip(label: Any, seed: int, deviations: dict[int, int]) -> None:
    schedule = Schedule(label, seed, tuple(sorted(deviations.items())), "1z")
    assert parse_token(schedule.token) == schedule


def test_late_delivery_of_a_timer_is_stock_and_its_lateness_is_the_stall() -> None:
    async def main() -> None:
        log: list[str] = []

        async def slow() -> None:
            await asyncio.sleep(0.005)
            log.append("timer")

        async def busy() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            log.append("busy")

        await asyncio.gather(slow(), busy())
        assert log == ["busy", "timer"], log

    executor = executor_of(main)
    found = Search(executor, "stock", 0).run(Limits(500, perf_counter() + 60)).failure
    assert found is not None
    best, _ = minimise(executor, found, perf_counter() + 60)
    assert best.run.lateness == pytest.approx(0.005)
    assert len(best.schedule.deviations) == 1


def test_stalls_longer_than_the_bound_are_not_explored() -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(30):
                for _ in range(3):
                    await asyncio.sleep(0)
        except TimeoutError:
            raise AssertionError("half a minute passed") from None

    assert explored(main, "stock").failures == 0


def test_fairness_bound_limits_how_often_a_ready_handle_is_passed_over() -> None:
    async def main() -> None:
        ready = False

        async def late() -> None:
            nonlocal ready
            ready = True

        async def spins() -> None:
            for _ in range(30):
                await asyncio.sleep(0)
            assert ready

        await asyncio.gather(late(), spins())

    assert explored(main, "reorder", 800).failures == 0


def test_guided_follows_a_recorded_order() -> None:
    executor = executor_of(late_lost_update)
    found = Search(executor, "reorder", 0).run(Limits(500, perf_counter() + 60)).failure
    assert found is not None
    again = executor.execute(Guided(found.run.order, found.run.extended), executor.model("reorder"), 0)
    assert again.run.order == found.run.order
    assert again.failed


def test_sequential_runs_one_call_after_another() -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def call(name: str) -> None:
            log.append(f"{name}1")
            await asyncio.sleep(0.01)
            log.append(f"{name}2")

        await asyncio.gather(call("a"), call("b"), call("c"))
        return log

    executor = executor_of(main)
    executor.execute(Sequential(), executor.model("reorder"), 0)
    assert executor.last_result == ["a1", "a2", "b1", "b2", "c1", "c2"]
    executor.execute(Sequential(descending=True), executor.model("reorder"), 0)
    assert executor.last_result == ["c1", "c2", "b1", "b2", "a1", "a2"]


def test_equal_seeds_give_equal_executions() -> None:
    """Determinism: the whole portfolio, twice."""

    def orders() -> list[Any]:
        executor = executor_of(late_lost_update)
        made: list[Any] = []
        search = Search(executor, "reorder", 3)
        original = search._do
        search._do = lambda strategy, chooser, seed: (
            made.append((e := original(strategy, chooser, seed)).run.order) or e
        )  # type: ignore[func-returns-value]
        search.run(Limits(60, perf_counter() + 60), stop=lambda _: False)
        return made

    assert orders() == orders()


def test_deviations_modulo_when_not_strict() -> None:
    executor = executor_of(late_lost_update)
    execution = executor.execute(Deviate({0: 7}), executor.model("reorder"), 0)
    assert execution.run.taken[0] == 7 % execution.run.options[0]
