"""Brute force: every choice sequence of an executor's model, depth first; the twin of every reduced search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaossloth.explore.execute import Execution, Executor
from chaossloth.loop.run import Handle, Run

__all__ = ["brute_force", "outcome"]


class _Path:
    def __init__(self, stack: list[list[int]]) -> None:
        self.stack = stack
        self.depth = 0

    def choose(self, options: list[Handle | None], run: Run) -> int:
        if self.depth == len(self.stack):
            self.stack.append([0, len(options)])
        taken, among = self.stack[self.depth]
        assert among == len(options), "an execution did not repeat"
        self.depth += 1
        return taken


def brute_force(executor: Executor, label: str, limit: int) -> Iterator[Execution]:
    """All executions of a label, at most `limit`; check `len` against it to know whether that was all."""
    stack: list[list[int]] = []
    for _ in range(limit):
        yield executor.execute(_Path(stack), executor.model(label), 0, record=False)
        while stack and stack[-1][0] == stack[-1][1] - 1:
            stack.pop()
        if not stack:
            return
        stack[-1][0] += 1


def outcome(executor: Executor, execution: Execution) -> Any:
    """What a program of `tests.reduction.generate` did: its result, or how it failed."""
    if execution.outcome.ok:
        return executor.last_result
    message = execution.outcome.message.split(";")[0].split(":")[0]
    return (execution.outcome.failure, message if execution.outcome.failure not in ("deadlock", "livelock") else "")
