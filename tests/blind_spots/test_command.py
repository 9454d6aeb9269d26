"""Command level: the same programs are found, or the verdict says `unobservable` and names what took part."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.support import run
from tests.blind_spots.programs import SPOTS, source_of

# Where the process, its modules or the world outside take part; the others are searched in `test_recorder`.
IN_A_PROCESS = [
    *("truth of a local alias", "vars unpacked", "dict |=", "heappop", "sorted", "method as a callback"),
    *("Queue.empty and get_nowait", "Queue.qsize and get_nowait", "semaphores AB-BA", "itemgetter", "numpy item"),
    *("global of another module", "global of another module, read there", "globals() and the name", "closure"),
    *(
        "setattr on a module",
        "default argument",
        "context variable in a shared context",
        "attribute of a standard module",
    ),
    *("asynchronous generator", "weak reference", "file by open", "file by pathlib", "environment"),
    *("sqlite on one connection", "tasks of gather in a callee", "tasks of TaskGroup in a callee", "code in a string"),
]
OPTIONS = ("--runs", "0", "--no-repair", "--budget", "10")


@pytest.mark.parametrize("title", IN_A_PROCESS)
def test_the_command_finds_it_or_names_it(title: str, tmp_path: Path) -> None:
    spot = SPOTS[title]
    source = source_of(spot)
    for name, text in spot.modules:
        (tmp_path / f"{name.lower()}_state.py").write_text(text)
        source = source.replace(name, f"{name.lower()}_state")
    (tmp_path / "subject.py").write_text(source)
    result = run("subject.py::main", *OPTIONS, cwd=tmp_path).result
    assert result["verdict"]["word"] != "proven"
    if spot.named:
        assert result["verdict"]["word"] == "unobservable"
        assert any(spot.named in what for what in result["verdict"]["unobservable"])
    else:
        assert result["outcome"] == "found", (result["outcome"], result["cause"], result["notes"])


@pytest.mark.parametrize("racy", [True, False])
def test_what_could_not_be_instrumented_is_named(racy: bool, tmp_path: Path) -> None:
    depth = 7000 if sys.version_info >= (3, 13) else 900  # deeper than the rewritten tree can be compiled
    source = f"""import asyncio
class Store:
    def __init__(self): self.n = 0
def too_deep(s):
    s.n += 1
    return s{"[0]" * depth}
async def act(s):
    v = s.n
    await asyncio.sleep(0)
    {"s.n = v + 1" if racy else "s.n += 1"}
async def main():
    s = Store()
    await asyncio.gather(act(s), act(s))
    assert s.n == 2
"""
    (tmp_path / "subject.py").write_text(source)
    done = run("subject.py::main", *OPTIONS, cwd=tmp_path)
    assert done.result["outcome"] == ("found" if racy else "clean")
    assert done.result["verdict"]["word"] == "unobservable"
    (named,) = [what for what in done.result["verdict"]["unobservable"] if "instrumented" in what]
    assert named.startswith("code that could not be instrumented: subject.py: too_deep (line 4): RecursionError")
    assert "subject.py: too_deep (line 4)" in done.words
