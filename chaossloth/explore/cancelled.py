"""How an execution with cancellations is judged: the victim's own end is no failure, everything else must survive.

    the main task raises   CancelledError that nobody asked of it, or the TimeoutError of a timeout that was fired: it
                           awaited the victim, so "ok: cancelled"; anything else is judged as ever
    shared work            is cancelled with the victim and takes an innocent task along: failure (`Injector.stray`)
    concurrent calls       the cancelled call may have taken effect or not: allowed are the sequential outcomes of all
                           calls, its result left out, and those of the others without it
    the victim ended with  a lock or a permit that it gives back where nothing is cancelled: nobody can have it any
                           more, also where nobody has asked for it yet: failure
    a task died            of the TimeoutError of a timeout that was fired: no failure

Whatever does not depend on the cancellation (an invariant of the scenario, a deadlock, an exception that nobody
retrieves) is judged by the executor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from chaossloth.evidence import Frame, Outcome
from chaossloth.loop.cancelling import TIMEOUTS, Injector, Landing, Victims
from chaossloth.loop.run import Run
from chaossloth.subject.primitives import watch
from chaossloth.subject.running import error_text, innermost_own

__all__ = ["deaths", "deepest", "expected", "judge_result", "kept", "was_expired", "where_landed"]

CANCELLED_OK = "cancelled with a task that it waited for"


def was_expired(run: Run, error: BaseException | None) -> bool:
    """Whether `error` is what a timeout that the schedule fired may leave behind."""
    fired = run.cancels is not None and any(each.cancel.kind in TIMEOUTS for each in run.cancels.landed)
    return fired and error is not None and all(isinstance(leaf, TimeoutError) for leaf in _leaves(error))


def expected(run: Run, error: BaseException | None) -> bool:
    """Whether the main task ended by `error` because it waited for the victim."""
    cancels = run.cancels
    if cancels is None or error is None or not cancels.landed:
        return False
    return cancels.main_cancelled or was_expired(run, error)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def judge_result(program: Any, run: Run, result: Any, error: BaseException | None) -> Outcome:
    """Outcome by what the main task gave or raised, in an execution in which a cancellation landed."""
    if expected(run, error):
        return Outcome(True, message=CANCELLED_OK)
    cancels = run.cancels
    assert cancels is not None
    victims = frozenset(landing.name for landing in cancels.landed)
    if error is None and getattr(program, "kind", "") == "calls":
        outcome: Outcome = program.judge_cancelled(result, victims)
        return outcome
    judged: Outcome = program.judge(result, error)
    return judged


def kept(run: Run, victims: Victims, is_subject: Callable[[str], bool]) -> Outcome | None:
    """The failures that only a look at what is left shows: an innocent that was cancelled, a permit that is lost."""
    cancels = run.cancels
    if cancels is None:
        return None
    abandoned = watch.abandoned()
    if not cancels.landed:
        victims.keep |= {(name, resource) for name, resource, _ in abandoned}
        return None
    if cancels.stray:
        return _stray(cancels, is_subject)
    names = {landing.name for landing in cancels.landed}
    for name, resource, at in abandoned:
        if name in names and (name, resource) not in victims.keep:
            text = f"{name} ended and still holds {resource}{_place(at)}; nobody can acquire it any more"
            return Outcome(False, "leak", None, text, at)
    return None


def _stray(cancels: Injector, is_subject: Callable[[str], bool]) -> Outcome:
    name, frames = cancels.stray[0]
    at = deepest(frames, is_subject)
    text = f"{name} is cancelled{_place(at)}, although only {cancels.landed[0].name} was: both waited for the same work"
    return Outcome(False, "exception", "CancelledError", text, at)


def deaths(run: Run, is_subject: Callable[[str], bool]) -> list[tuple[str, str, str, int]]:
    """(name, exception, file, line) of tasks and callbacks that ended by an exception nobody has looked at."""
    found: list[tuple[str, BaseException]] = []
    for proc in run.procs:
        task = proc.ref() if proc.ref is not None else None
        if task is not None and task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
            error = task.exception()
            if error is not None:
                found.append((proc.label, error))
    problems = [(str(p.get("message", "")).partition("\n")[0], p.get("exception")) for p in run.problems]
    found += [(message, error) for message, error in problems if error is not None]
    told = []
    for name, error in found:
        at = innermost_own(error.__traceback__, is_subject)
        text = f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")
        told.append((name, text, at.file if at is not None else "", at.line if at is not None else 0))
    return told


def where_landed(landing: Landing, is_subject: Callable[[str], bool]) -> Frame | None:
    """The subject's innermost line at which the task stood."""
    return deepest(landing.frames, is_subject)


def deepest(frames: list[tuple[str, int, str]], is_subject: Callable[[str], bool]) -> Frame | None:
    own = [frame for frame in frames if is_subject(frame[0])]
    return Frame(*own[-1]) if own else None


def _place(at: Frame | None) -> str:
    return f" at {os.path.basename(at.file)}:{at.line}" if at is not None else ""
