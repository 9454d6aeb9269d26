"""Stable names for tasks and callbacks, the same on the stock loop and on the controlled loop.

A task is named by who created it and as which one: the main task is `ROOT`, the k-th task (from 1) that is created
while task T runs is T + "." + k. A handle that is no task step (`call_soon`, a timer, a done callback, asyncio's own
included) is named by the step that scheduled it plus "c" + k, where k counts such handles of that task or callback over
all its steps, in the order of scheduling. Creation order inside one creator is program order, so a name does not depend
on the interleaving, unlike the counter in the loop's own "Task-7".

What comes from outside (a descriptor that is ready, a thread, a signal) is named by the step that asked for it, plus
"c0" + a letter for its kind + k, counted by kind; all that comes from that source has this one name.

Tasks that are created while no step runs (by `asyncio.run` and the like) are numbered "0", "1", ...; the tasks that
asyncio itself makes there to shut a loop down are not counted.
"""

from __future__ import annotations

__all__ = ["ROOT", "UNHOOKED", "Identity", "arrival", "callback", "child", "outside"]

ROOT = "0"
UNHOOKED = "cb"  # stands for callbacks of the stock loop that were not followed (natural runs, I/O)


def child(creator: str, k: int) -> str:
    """Identity of the k-th task (1-based) that `creator` created."""
    return f"{creator}.{k}"


def callback(creator: str, k: int) -> str:
    """Identity of the k-th callback (1-based) that `creator` scheduled."""
    return f"{creator}c{k}"


def outside(k: int) -> str:
    """Identity of the k-th task (1-based) that was created while no step ran; the first is `ROOT`."""
    return str(k - 1)


def arrival(creator: str, kind: str, k: int) -> str:
    """Identity of the k-th (1-based) source of `kind` (one letter) that `creator` asked for."""
    return f"{creator}c0{kind}{k}"


class Identity:
    """A name with its number, kept over executions: what it creates is found by position, so no text is made twice.

    Without arguments: the root of a new tree, who runs while no step does. Numbers count from 1 in the order in which
    the names of a tree were met. ended: the recorder's number for the end of that task, 0 until it is asked for.
    """

    __slots__ = ("_known", "callbacks", "ended", "key", "number", "tasks")

    def __init__(self, key: str = "", known: dict[str, Identity] | None = None) -> None:
        self._known = known = known if known is not None else {}
        known[key] = self
        self.key = key
        self.number = len(known)
        self.ended = 0
        self.tasks: list[Identity] = []
        self.callbacks: list[Identity] = []

    def of(self, key: str) -> Identity:
        """The identity of that name in the same tree."""
        return self._known.get(key) or Identity(key, self._known)

    def task(self, k: int) -> Identity:
        """Of the k-th task (1-based) that this one creates."""
        while len(self.tasks) < k:
            n = len(self.tasks) + 1
            self.tasks.append(self.of(child(self.key, n) if self.key else outside(n)))
        return self.tasks[k - 1]

    def callback(self, k: int) -> Identity:
        """Of the k-th callback (1-based) that this one schedules."""
        while len(self.callbacks) < k:
            self.callbacks.append(self.of(callback(self.key, len(self.callbacks) + 1)))
        return self.callbacks[k - 1]
