"""What a failing execution with cancellations shows, against the same order without them.

The cancellation is the cause by experiment: the failing schedule is executed again and again as it is, and as often
without its cancellations. Where it passes then, that run is the nearest passing one, and what the victim did not do (or
did in its clean-up) is read off the two traces (`diagnose.cancelled`).
"""

from __future__ import annotations

from dataclasses import dataclass

from chaossloth.evidence import Cancellation, Trace
from chaossloth.explore.cancelled import where_landed
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.strategy import Deviate
from chaossloth.explore.trace import to_trace
from chaossloth.loop.cancelling import TIMEOUTS

__all__ = ["Landed", "diagnose_cancelled"]


@dataclass(frozen=True, slots=True)
class Landed:
    """failing, passing: traces; passing is None where the order fails without the cancellation too.

    handed: type name of what the victim was to be given when it was cancelled; None: it had not been woken.
    innocents: tasks that were cancelled with work that they shared with the victim.
    died: (task or callback, exception and text, file, line) of those that ended by an exception nobody looked at.
    verified: sentence on what both, executed `times` times, showed.
    """

    failing: Trace
    passing: Trace | None
    cancellations: tuple[Cancellation, ...]
    handed: str | None
    innocents: tuple[str, ...]
    died: tuple[tuple[str, str, str, int], ...]
    verified: str
    executions: int


def diagnose_cancelled(executor: Executor, failure: Execution, times: int) -> Landed:
    """Diagnose an execution that fails under its schedule's cancellations."""
    detailed = executor.replay(failure.schedule, detail=True, strict=True)
    failing = to_trace(detailed, executor.is_subject)
    injector = detailed.run.cancels
    assert injector is not None
    landings = tuple(
        Cancellation(
            task=each.name,
            at=where_landed(each, executor.is_subject),
            suspension=each.cancel.step,
            kind="timeout" if each.cancel.kind in TIMEOUTS else "cancel",
            state=each.state,
            step=each.index,
        )
        for each in injector.landed
    )
    handed = injector.landed[-1].result if injector.landed else None
    innocents = tuple(name for name, _ in injector.stray)
    died = tuple(injector.died)
    same = failure.schedule.deviations
    order = same if not same or not _without(executor, failure, same).failed else ()
    passing = _without(executor, failure, order, detail=True)
    trace = None if passing.failed else to_trace(passing, executor.is_subject)
    fails = sum(executor.replay(failure.schedule).failed for _ in range(times))
    passes = sum(not _without(executor, failure, order).failed for _ in range(times))
    word = "timeout" if landings and landings[-1].kind == "timeout" else "cancellation"
    sentence = f"with this {word} it fails {fails}/{times}; "
    sentence += f"{'the same' if order == same else 'stock'} order without it passes {passes}/{times}"
    if fails != times or passes != times:
        sentence = f"not confirmed: {sentence}"
    return Landed(failing, trace, landings, handed, innocents, died, sentence, 2 + 2 * times)


def _without(
    executor: Executor, failure: Execution, order: tuple[tuple[int, int], ...], detail: bool = False
) -> Execution:
    schedule = failure.schedule
    chooser = Deviate(dict(order))
    with executor.like():
        return executor.execute(chooser, executor.model(schedule.label), schedule.seed, detail)
