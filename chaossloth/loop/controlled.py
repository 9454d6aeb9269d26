"""One execution of an asyncio program under a chosen schedule: the controlled event loop.

Transition system. A *step* is one handle run to its end (a task's step from one suspension to the next, a callback, a
timer's callback). The loop keeps stock asyncio's structure (`base_events._run_once`): a FIFO ready queue worked off in
rounds, completions appended at round boundaries. Three models differ only in what is a choice:

  stock    which pending completions are delivered at a boundary. Timers come in deadline order and never early;
           delivering one while the loop is busy means the loop was stalled until then: that time is summed up as
           *lateness*. Equal virtual deadlines may fall into different rounds (real clocks move between two
           `call_later`). A loop that is busy for 1000 rounds takes as long as its next timer.
  latency  also: a bare yield (`sleep(0)`) may take time. It becomes a completion of free length.
  reorder  also: any ready handle may run next. A handle that was passed over `bypass_bound` times by younger ones runs
           at once (fairness). Two callbacks of one future keep their order: stock transports rely on it. asyncio's own
           callbacks (gather, wait, TaskGroup, shield) run inside the step that caused them; as separate steps they
           would only multiply equivalent interleavings.

Option 0 of every choice is what a stock loop would do with infinitely fast steps, so a schedule is the sparse list of
its deviations. Time is virtual. Tasks and futures are asyncio's own C ones. Thread work (`to_thread`,
`run_in_executor`) is a step of its own, delivered by the schedule (`bodies`); sockets, processes, signals and threads
are real, and their completions are delivered by the schedule too (`arrivals`, `io`, `waiting`). The loop object is
reused.

Prior art: CHESS (Musuvathi et al., OSDI 2008) for deterministic re-execution, NodeRacer (Endo, Moller, ICST 2020) and
loom/shuttle for the shape. Rejected: subclassing BaseEventLoop (its heap, selector and clock are what must be
controlled).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
from asyncio import events
from collections.abc import Callable
from types import CoroutineType, MethodType
from typing import Any

from chaossloth.evidence import Frame
from chaossloth.liveness import suspended_at
from chaossloth.loop.collecting import collect_before_step
from chaossloth.loop.delivery import DeliveringLoop
from chaossloth.loop.ends import CLEAN_UP_STEPS, RUN_ON_STEPS, close
from chaossloth.loop.quiescence import started
from chaossloth.loop.run import Handle, LoopStopped, Proc, RawStep
from chaossloth.loop.scheduling import callback_name, is_internal
from chaossloth.subject.channel import BY_COUNT, guard
from chaossloth.subject.effects import FOREIGN_CALLBACKS, before_callback
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import recorder
from chaossloth.subject.recorder import BLOCKED, COMMUTES, NO_SITE, READ, SYNC, WRITE

__all__ = ["ControlledLoop"]


_ROOTS = frozenset({"timer", "external", "late yield"})  # causes that follow from a delivery, not from a step
_NOBODY: list[int] = []
_END = (recorder.names.number(("run",)), "end")
_ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep


_BUSY_ROUNDS = 1_000


class ControlledLoop(DeliveringLoop):
    """An event loop that runs one `Run` at a time."""

    # ------------------------------------------------------------------ running

    def run_forever(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._running:
            raise RuntimeError("This event loop is already running")
        if events._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")
        self._as_running(self._until_stopped)

    def _as_running(self, work: Callable[[], None]) -> None:
        """Call `work` as the running loop of this thread."""
        old_hooks = sys.get_asyncgen_hooks()
        self._running = True
        self._thread_id = threading.get_ident()
        self._real = self._real or bool(started)
        sys.set_asyncgen_hooks(*self._asyncgen_hooks)
        events._set_running_loop(self)
        guard.steps_of(self.run)
        try:
            work()
        except LoopStopped as stopped:
            self.run.stopped_by(stopped, self)
            raise
        finally:
            guard.steps_of(None)
            self._stopping = False
            self._running = False
            self._thread_id = None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*old_hooks)

    def _until_stopped(self) -> None:
        while not self._stopping:
            self._round()

    def run_until_complete(self, future: Any) -> Any:
        coroutine = type(future) is CoroutineType or asyncio.iscoroutine(future)
        new_task = coroutine or not asyncio.isfuture(future)
        task: Any = self.create_task(future) if coroutine else asyncio.ensure_future(future, loop=self)
        if new_task and hasattr(task, "_log_destroy_pending"):
            task._log_destroy_pending = False
        stop = self._stop_when_done
        task.add_done_callback(stop)
        try:
            self.run_forever()
        except BaseException:
            if new_task and task.done() and not task.cancelled():
                task.exception()
            raise
        finally:
            task.remove_done_callback(stop)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        if self.run.cancels is not None:
            self.run.cancels.main_ended(self, task)
        if self.run.recording and not self.run.detail and not self._reorder:
            self._note_end()
        return task.result()

    def _note_end(self) -> None:
        """FIFO: the loop ends with the round of `_stop_when_done`; who died by then is judged. A step of its own."""
        run = self.run
        creator = run.ended_by
        root = run.links[creator][2] if creator >= 0 else run.count
        run.links.append((creator, -1, root))
        end = self._proc("end", "end", False)
        end.steps += 1
        run.steps.append(RawStep(end, end.steps, creator, "end", [(*_END, READ | SYNC, NO_SITE)], run.clock))
        run.count += 1

    def _stop_when_done(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and isinstance(future.exception(), (SystemExit, KeyboardInterrupt)):
            return
        self._stopping = True
        self.run.ended_by = self.run.index

    _stop_when_done.__module__ = "asyncio.base_events"  # folded in `reorder` like the stock loop's own

    def _round(self) -> None:
        run = self.run
        run.rounds += 1
        if self._real:
            self._arrivals()
        ready = self._ready
        if self._reorder and run.judging:
            if not ready and not self._timers and not self._free:
                self._nothing_ready()
                return
            handle = (
                self._pick() if len(ready) + len(self._timers) + len(self._free) > 1 or not ready else ready.popleft()
            )
            if not handle._cancelled:
                self._execute(handle)
            if run.cancels is not None:
                run.cancels.round_ends(self)
            return
        if not ready or self._timers or self._free:
            self._busy_rounds = self._busy_rounds + 1 if ready else 0
            if self._busy_rounds > _BUSY_ROUNDS:
                self._let_time_pass()
            self._deliver()
        for _ in range(len(ready)):
            if not ready:
                break
            handle = ready.popleft()
            if not handle._cancelled:
                self._execute(handle)
        if run.cancels is not None:
            run.cancels.round_ends(self)

    def _let_time_pass(self) -> None:
        """A loop that never rests takes time too: with steps that cost nothing, a program that polls with `sleep(0)`
        would never meet its timers, and be called a livelock that no real loop shows."""
        run = self.run
        self._busy_rounds = 0
        self._forget_cancelled()
        if not self._timers and not self._free:
            return
        run.pushed = True
        chosen = self._timers[0] if self._timers else self._free[0]
        run.blocked += max(0.0, chosen.clock[1] - run.now)
        group: list[tuple[str, int]] = []
        self._arrive(chosen, group)
        run.groups.append(group)

    def _execute(self, handle: Handle) -> None:
        run = self.run
        proc = handle.proc
        index = run.count
        if index >= run.limit:
            self._ready.appendleft(handle)  # what is cleaned up afterwards goes on here
            raise LoopStopped("livelock", f"{index} steps were made and the program did not end")
        proc.steps += 1
        run.current = proc
        run.index = handle.ran = index
        run.count = index + 1
        cause, creator = handle.cause, handle.creator
        links = run.links
        rooted = creator < 0 or cause in _ROOTS
        links.append((creator, proc.last, index if rooted else links[creator][2]))
        proc.last = index
        run.clock = proc.clock = clock = handle.clock
        if clock[1] > run.now:
            run.now = clock[1]
        if run.judging:
            run.order.append((proc.key, cause))
        guard.step_started = BY_COUNT
        recording = run.recording
        if recording:
            recorder.begin_step(proc.number, proc.steps)
            if run.collect:
                collect_before_step(run)
            if type(handle.callback) in FOREIGN_CALLBACKS:
                before_callback(handle.callback, handle.args)
            if cause == "timer" and (args := handle.args) and (number := recorder.names.ids.get(id(args[0]))):
                recorder.put((number, "done", WRITE | SYNC, NO_SITE))  # unless it was cancelled before
        if recording and cause == "callback" and is_internal(handle.callback):
            self._call_internal(handle)
        else:
            self._call(handle)
        if self._folded:
            self._call_folded()
        if run.cancels is not None:
            run.cancels.step_ended(self, handle)
        if recording:
            accesses = recorder.end_step()
            if proc.is_task:
                self._note_task(proc, accesses)
            bound = handle.required() if handle.before or handle.joined or handle.after is not None else ()
            step = RawStep(proc, proc.steps, creator, cause, accesses, clock, bound)
            run.steps.append(step)
            if run.detail and proc.is_task:
                step.suspended = _position(proc)

    def _note_task(self, proc: Proc, accesses: list[Any]) -> None:
        """The step ended its task, or the task now waits for a future: accesses of (task or future, "done")."""
        task = proc.ref() if proc.ref is not None else None
        if task is None:
            return
        if task.done():
            ended = proc.identity.ended
            if not ended:
                ended = proc.identity.ended = recorder.names.task(proc.key)
            accesses.append((ended, "done", WRITE | SYNC, NO_SITE))
            if proc.outermost and self._reorder:
                accesses.append((*_END, READ | SYNC, NO_SITE))  # which others have died by now is judged
            elif getattr(task, "_log_traceback", False):
                accesses.append((*_END, COMMUTES | SYNC, NO_SITE))
            return
        awaited = getattr(task, "_fut_waiter", None)
        if awaited is not None and (number := recorder.names.known(awaited)):
            accesses.append((number, "done", BLOCKED | SYNC, NO_SITE))

    def _call_folded(self) -> None:
        """asyncio's own callbacks that the step scheduled, and those that they schedule, belong to it (`reorder`)."""
        folded = self._folded
        while folded:
            handle = folded.pop(0)
            if handle._cancelled:
                continue
            if self.run.recording:
                self._call_internal(handle)
            else:
                self._call(handle)

    def _call_internal(self, handle: Handle) -> None:
        """One of asyncio's own callbacks on a future: what it decides is recorded; see `loop.joins`."""
        callback = handle.callback
        fifo = not self._reorder
        before = len(self._ready)
        index = self.run.index
        steps = (*handle.joined, index) if handle.joined else (index,)
        if type(callback) is MethodType and callback.__self__ is self:  # `_stop_when_done` wakes nobody
            number = 0
        else:
            self._joining, number = self._joins.note(callback, handle.args, steps, fifo)
        child = handle.args[0] if handle.args else None
        unseen = getattr(child, "_log_traceback", False)
        self._call(handle)
        self._joining = _NOBODY
        if unseen and not getattr(child, "_log_traceback", False):
            recorder.put((*_END, COMMUTES | SYNC, NO_SITE))  # its exception counts as retrieved from here on
        if fifo and number and len(self._ready) > before:
            self._joins.scheduled(number)

    def _call(self, handle: Handle) -> None:
        args = handle.args
        try:
            if args:
                handle.context.run(handle.callback, *args)
            else:
                handle.context.run(handle.callback)
        except (SystemExit, KeyboardInterrupt, LoopStopped):
            raise
        except BaseException as error:
            self._report(handle, error)

    def _report(self, handle: Handle, error: BaseException) -> None:
        message = f"Exception in callback {callback_name(handle.callback)}"
        if self.run.recording:
            recorder.put((*_END, COMMUTES | SYNC, NO_SITE))
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    # ------------------------------------------------------------------ the rest of the loop's interface

    def time(self) -> float:
        """To asyncio itself causal time, so that a timeout's length is exact; to others what a clock shows."""
        run = self.run
        if sys._getframe(1).f_code.co_filename.startswith(_ASYNCIO):
            return run.clock[1]
        run.read_clock()
        return run.now

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        self._closed = True
        self.close_io()
        self._ready.clear()
        self._timers.clear()
        self._free.clear()

    def get_debug(self) -> bool:
        return False  # debug mode reads real clocks and formats every handle

    def set_debug(self, enabled: bool) -> None:
        return None

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.run.problems.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def _finalize_asyncgen(self, agen: Any) -> None:
        self._asyncgens.discard(agen)
        self._left_unfinished([agen])
        if not self._closed:
            self.call_soon_threadsafe(self.create_task, agen.aclose())

    async def shutdown_asyncgens(self) -> None:
        agens = list(self._asyncgens)
        self._asyncgens.clear()
        if not agens:
            return
        self._left_unfinished(agens)
        results = await asyncio.gather(*(agen.aclose() for agen in agens), return_exceptions=True)
        for agen, error in zip(agens, results, strict=True):
            if isinstance(error, Exception):
                message = f"an error occurred during closing of asynchronous generator {agen!r}"
                self.call_exception_handler({"message": message, "exception": error, "asyncgen": agen})

    def _left_unfinished(self, agens: list[Any]) -> None:
        codes = [(agen.__qualname__, agen.ag_code) for agen in agens]
        self.run.ends.generators += [
            (name, Frame(code.co_filename, code.co_firstlineno, code.co_qualname))
            for name, code in codes
            if watch.is_subject(code.co_filename)
        ]

    # ------------------------------------------------------------------ after the main future

    def drain(self) -> None:
        """What `asyncio.run` does at its end, in stock order; see `loop.ends`. What it shows goes to `run.ends`."""
        run = self.run
        run.judging = False
        left = self.unfinished()
        if left and run.ended is None:
            run.ends.pending += [self._made_by(task) for task in left if isinstance(task.get_coro(), CoroutineType)]
            if run.recording and not run.follow:
                run.capped = True
            elif run.recording:
                self._run_on()
                left = self.unfinished()
        run.recording = False
        run.limit = run.count + CLEAN_UP_STEPS
        if left:
            self._cancel(left)
        if self._asyncgens:
            self._close_generators()
        self._close_arguments()
        self._ready.clear()
        self._timers.clear()
        self._free.clear()
        self.close_io()

    def _close_arguments(self) -> None:
        """`call_soon(ensure_future, coroutine)` and the end comes first: `asyncio.run` turns the loop once more at its
        end, so what is ready still runs there, and the coroutine is not one that nobody awaits."""
        for handle in self._ready:
            for argument in handle.args:
                if type(argument) is CoroutineType and inspect.getcoroutinestate(argument) == inspect.CORO_CREATED:
                    argument.close()

    def _named(self, task: asyncio.Task[Any]) -> tuple[str, Frame | None]:
        proc = self.proc_of(task)
        return (proc.name if proc is not None else task.get_name()), suspended_at(task)

    def _made_by(self, task: asyncio.Task[Any]) -> tuple[str, Frame | None]:
        """Name and function: where it stands differs between executions."""
        code = task.get_coro().cr_code  # type: ignore[union-attr]
        own = watch.is_subject(code.co_filename)
        return self._named(task)[0], Frame(code.co_filename, code.co_firstlineno, code.co_qualname) if own else None

    def _run_on(self) -> None:
        """Let what the main task left behind go on, recorded but not judged: an access that came too late is seen.

        In stock order, for a limited number of steps; `Run.capped` tells that more would have followed.
        """
        run = self.run
        self._reorder = self._latency = False
        limit = run.count + RUN_ON_STEPS

        def go_on() -> None:
            while self._ready or self._timers or self._free:
                if run.count >= limit:
                    run.capped = True
                    return
                self._round()

        with contextlib.suppress(LoopStopped):  # they wait for ever: nothing more is to be seen
            self._as_running(go_on)

    def _cancel(self, left: list[asyncio.Task[Any]]) -> None:
        """Cancel and wait; what does not end is said, and closed."""
        for task in left:
            task.cancel()
        self._reorder = self._latency = False
        how, unknown = "did not end", False
        try:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        except LoopStopped as stopped:
            how = "waits for ever" if stopped.kind == "deadlock" else f"still runs {CLEAN_UP_STEPS} steps later"
            unknown = stopped.kind == "waited"  # for something outside: it may still come
        except RuntimeError as error:
            self.run.problems.append({"message": f"while cancelling what was left: {error}", "exception": None})
        for task in self.unfinished():
            name, place = self._named(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            raised = close(task.get_coro(), self)
            refused = f"; closing it raised {type(raised).__name__}: {raised}" if raised is not None else ""
            if not unknown or refused:
                sentence = f"task {name} was cancelled at the end and {how}{refused}"
                self.run.ends.stubborn.append((sentence, place))

    def _close_generators(self) -> None:
        try:
            self.run_until_complete(self.shutdown_asyncgens())
        except LoopStopped as stopped:
            if stopped.kind != "waited":
                self.run.ends.stubborn.append(("the clean-up of an asynchronous generator waits for ever", None))


def _position(proc: Proc) -> Any:
    """Frames of the suspended coroutine chain of `proc`'s task, outermost first; None when it has ended."""
    task = proc.ref() if proc.ref is not None else None
    if task is None or task.done():
        return None
    frames: list[tuple[str, int, str]] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = (
            getattr(awaited, "cr_frame", None)
            or getattr(awaited, "gi_frame", None)
            or getattr(awaited, "ag_frame", None)
        )
        if frame is not None:
            frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        awaited = (
            getattr(awaited, "cr_await", None)
            or getattr(awaited, "gi_yieldfrom", None)
            or getattr(awaited, "ag_await", None)
        )
    return frames
