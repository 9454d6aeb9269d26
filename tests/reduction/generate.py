"""Random small programs: two to four tasks over shared variables, a dict, and asyncio's primitives.

A program is a module's text with a coroutine function `main` that returns everything observable. Its size is kept so
small that brute force is feasible; the operations are those whose order may matter, and awaits of every kind.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Flavour", "program"]

_HEAD = """
import asyncio, random

class Shared:
    def __init__(self):
        self.x = 0
        self.size = 0
        self.table = {}
        self.lock = asyncio.Lock()
        self.other = asyncio.Lock()
        self.event = asyncio.Event()
        self.queue = asyncio.Queue()
        self.pool = asyncio.Semaphore(2)
"""
_AWAITS = ("sleep", "sleep", "window", "window", "lock", "event", "set", "queue", "put", "gather", "group") + (
    "clear",
    "locked",
    "pool",
    "is_set",
    "wait",
    "cancel",
    "dead",
    "future",
)


@dataclass(frozen=True)
class Flavour:
    """timers: sleeps of 1 to 3 ms; draws: some of random length; cancels: tasks cancel each other; calls: awaits of
    coroutines that return without suspending; dense: fewer kinds, more windows."""

    timers: bool = False
    draws: bool = False
    cancels: bool = False
    calls: bool = False
    dense: bool = False
    awaits: tuple[int, ...] = (3, 4, 5)


@dataclass
class _Writer:
    random: random.Random
    flavour: Flavour
    tasks: int
    budget: int
    functions: list[str] = field(default_factory=list)

    def length(self) -> str:
        draw = self.random
        if not self.flavour.timers or draw.random() < 0.3:
            return "0"
        if self.flavour.draws and draw.random() < 0.5:
            return "random.uniform(0, 0.003)"
        return f"0.00{draw.choice((1, 2, 3))}"

    def block(self, indent: int, depth: int, name: str) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.statement(indent, depth, name)
        return lines

    def statement(self, indent: int, depth: int, name: str) -> list[str]:
        draw, pad = self.random, " " * indent
        kind = draw.random()
        if self.flavour.dense and draw.random() < 0.35:
            kind = 1.0
        key = f"'k{draw.randint(0, 1)}'"
        plain = (
            (0.14, "log.append(s.x)"),
            (0.22, f"s.x = s.x + {draw.randint(1, 3)}"),
            (0.28, f"s.x += {draw.randint(1, 3)}"),
            (0.34, "s.size = len(log)"),
            (0.40, f"s.table[{key}] = {draw.randint(1, 5)}"),
            (0.45, f"log.append(s.table.get({key}))"),
            (0.48, "log.append(len(s.table))"),
            (0.50, "log.append(sorted(s.table.items()))"),
            (0.53, f"s.table.pop({key}, None)"),
        )
        for limit, text in plain:
            if kind < limit:
                return [pad + text]
        if self.budget <= 0:
            return []
        self.budget -= 1
        return [pad + line for line in self.awaiting(depth, name)]

    def awaiting(self, depth: int, name: str) -> list[str]:
        draw, length = self.random, self.length()
        kind = draw.choice(_AWAITS)
        if self.flavour.dense and draw.random() < 0.6:
            kind = draw.choice(("sleep", "window", "window", "lock", "gather"))
        if self.flavour.calls and draw.random() < 0.25:
            return ["await quick(s)"] if draw.random() < 0.5 else ["v = s.x", "await quick(s)", "s.x = v + 1"]
        simple = {
            "sleep": [f"await asyncio.sleep({length})"],
            "window": ["v = s.x", f"await asyncio.sleep({length})", "s.x = v + 1"],
            "event": ["await s.event.wait()"],
            "set": ["s.event.set()"],
            "clear": ["s.event.clear()"],
            "is_set": ["log.append(s.event.is_set())"],
            "locked": ["log.append(s.lock.locked())"],
            "queue": ["log.append(await s.queue.get())"],
            "put": [f"s.queue.put_nowait({draw.randint(0, 9)})"],
            "dead": [f"if s.x > {draw.randint(1, 4)}:", "    raise ValueError(s.x)"],
            "future": [
                "if s.future.done():",
                "    log.append(s.future.result())",
                "elif s.x % 2:",
                "    s.future.set_result(s.x)",
                "else:",
                "    log.append(await s.future)",
            ],
        }
        if kind in simple:
            return simple[kind]
        if kind in ("lock", "pool") and depth < 2:
            held = draw.choice(("lock", "other")) if kind == "lock" else "pool"
            return [f"async with s.{held}:", *(self.block(4, depth + 1, name) or ["    pass"])]
        if kind == "cancel" and self.flavour.cancels:
            return [f"tasks[{draw.randint(0, self.tasks - 1)}].cancel()"]
        if kind in ("gather", "group", "wait") and depth == 0:
            return self.children(kind, name)
        return []

    def children(self, kind: str, name: str) -> list[str]:
        draw = self.random
        made = []
        for number in range(2):
            child = f"child{len(self.functions)}_{number}_{name}"
            body = self.block(4, 1, child) or ["    pass"]
            if kind != "group" and draw.random() < 0.15:
                body.append(f"    raise ValueError('{child}')")
            self.functions.append("\n".join([f"async def {child}(s, log, tasks):", *body, "    return s.x"]))
            made.append(f"{child}(s, log, tasks)")
        if kind == "gather":
            return [f"log.append(await asyncio.gather({', '.join(made)}))"]
        if kind == "group":
            return ["async with asyncio.TaskGroup() as group:", *(f"    group.create_task({each})" for each in made)]
        listed = ", ".join(f"asyncio.ensure_future({each})" for each in made)
        return [
            f"done, _ = await asyncio.wait([{listed}], return_when=asyncio.FIRST_COMPLETED)",
            "log.append(len(done))",
        ]


def program(seed: int, flavour: Flavour) -> str:
    """The text of program number `seed`."""
    draw = random.Random(seed)
    tasks = draw.choice((2, 2, 3, 3, 4))
    writer = _Writer(draw, flavour, tasks, 3 if tasks == 4 else draw.choice(flavour.awaits))
    bodies = []
    for number in range(tasks):
        body = writer.block(4, 0, f"t{number}") or ["    pass"]
        bodies.append("\n".join([f"async def t{number}(s, log, tasks):", *body]))
    main = [
        "async def main():",
        "    s = Shared()",
        "    s.future = asyncio.get_running_loop().create_future()",
        f"    tasks, logs = [], [[] for _ in range({tasks})]",
        *(f"    tasks.append(asyncio.create_task(t{n}(s, logs[{n}], tasks)))" for n in range(tasks)),
        "    ended = await asyncio.gather(*tasks, return_exceptions=True)",
        "    return repr((s.x, s.size, sorted(s.table.items()), [list(log) for log in logs],"
        " [repr(e) for e in ended], s.lock.locked()))",
    ]
    quick = "async def quick(s):\n    s.size += 1"
    return "\n\n".join([_HEAD, quick, *writer.functions, *bodies, "\n".join(main)])
