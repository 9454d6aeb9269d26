"""The renderer: same tree, same text elsewhere, diffs that other tools accept."""

from __future__ import annotations

import ast
import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaossloth.repair.render import Draft, Finished, Keep, Line, Suite, tree_hash, unified_diff
from chaossloth.repair.source import Block, ModuleSource, Refused

ASYNCIO = Path(asyncio.__file__).parent


def wrap(module: ModuleSource, block: Block, first: int, last: int) -> tuple[Draft, Finished]:
    """Put `async with guard:` around a run, in text and tree."""
    draft = Draft(module)
    run = block.statements[first : last + 1]
    draft.rewrite(block, first, last, [Suite("async with guard:", tuple(map(Keep, run)))])
    section = ast.AsyncWith(
        items=[ast.withitem(context_expr=ast.Name(id="guard", ctx=ast.Load()))],
        body=[draft.copy(s) for s in run],  # type: ignore[misc]
    )
    draft.replace_run(block, run[0], run[-1], [section])
    return draft, draft.finish()


def wrapped(source: str, first: int = 0, last: int = 0, depth: int = 0) -> str:
    """Wrap statements first..last of the depth-th block of the module's first async function."""
    module = ModuleSource("m.py", source)
    function = next(f for f in module.functions if isinstance(f, ast.AsyncFunctionDef))
    _, done = wrap(module, list(module.blocks(function))[depth], first, last)
    assert done.tree_hash == tree_hash(done.source)
    return done.source


def async_runs(module: ModuleSource) -> Iterator[tuple[Block, int, int]]:
    for function in module.functions:
        if isinstance(function, ast.AsyncFunctionDef):
            for block in module.blocks(function):
                for first in range(len(block.statements)):
                    for last in range(first, len(block.statements)):
                        yield block, first, last


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["locks", "queues", "streams", "taskgroups", "timeouts", "tasks", "base_events"])
def test_wrapping_any_run_of_asyncio_keeps_the_tree_and_the_text_outside(name: str, newline: str) -> None:
    source = (ASYNCIO / f"{name}.py").read_text("utf-8").replace("\n", newline)
    module = ModuleSource(name, source)
    runs = list(async_runs(module))
    done = 0
    for block, first, last in runs[:: max(1, len(runs) // 10)]:
        if source.startswith("elif", module.start(block.statements[0])):
            with pytest.raises(Refused, match="elif"):
                wrap(module, block, first, last)
            continue
        draft, finished = wrap(module, block, first, last)
        edit = draft.edits[0]
        assert finished.source.startswith(source[: edit.start])
        assert finished.source.endswith(source[edit.end :])
        assert ast.dump(ast.parse(finished.source)) == ast.dump(draft.tree)
        assert finished.tree_hash == tree_hash(finished.source)
        assert [t.strip() for t in finished.source.split("\n") if "async with guard:" not in t] == [
            t.strip() for t in source.split("\n")
        ]
        done += 1
    assert done >= 4


def test_comments_blank_lines_and_quotes_stay() -> None:
    source = (
        "async def f(self):\n"
        "    # before\n"
        "    a = 'x'  # one\n"
        "\n"
        "    # between\n"
        '    await b("y")  # two\n'
        "    # behind\n"
        "    return a\n"
    )
    assert wrapped(source, 0, 1) == (
        "async def f(self):\n"
        "    # before\n"
        "    async with guard:\n"
        "        a = 'x'  # one\n"
        "\n"
        "        # between\n"
        '        await b("y")  # two\n'
        "    # behind\n"
        "    return a\n"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def f():\n\tawait a()\n", "async def f():\n\tasync with guard:\n\t\tawait a()\n"),
        ("async def f():\r\n  await a()\r\n", "async def f():\r\n  async with guard:\r\n    await a()\r\n"),
        ("async def f():\n   await a()", "async def f():\n   async with guard:\n      await a()"),
        ("async def f(): await a()\n", "async def f():\n    async with guard:\n        await a()\n"),
        (
            "\ufeffasync def f():\n    await ä()  # é\n",
            "\ufeffasync def f():\n    async with guard:\n        await ä()  # é\n",
        ),
        ("async def f():\n    await a(); b()\n", "async def f():\n    async with guard:\n        await a()\n    b()\n"),
        ("async def f():\n    await a();  # c\n", "async def f():\n    async with guard:\n        await a();  # c\n"),
        ("async def f():\n\f    await a()\n", "async def f():\n\f    async with guard:\n        await a()\n"),
        (
            "async def f():\n    await a(1,\n      2)\n",
            "async def f():\n    async with guard:\n        await a(1,\n          2)\n",
        ),
        (
            "async def f():\n    x = await a + \\\n        1\n",
            "async def f():\n    async with guard:\n        x = await a + \\\n            1\n",
        ),
        (
            'async def f():\n    await a("""\n    in\n""")\n',
            'async def f():\n    async with guard:\n        await a("""\n    in\n""")\n',
        ),
        (
            'async def f():\n    await a(f"""\n    {x(\n    1)}\n    """, 2,\n    3)\n',
            'async def f():\n    async with guard:\n        await a(f"""\n    {x(\n    1)}\n    """, 2,\n        3)\n',
        ),
        (
            "async def f():\n    @d(1)\n    def g(): pass\n    await g()\n",
            "async def f():\n    async with guard:\n        @d(1)\n        def g(): pass\n    await g()\n",
        ),
    ],
    ids=[
        "tabs",
        "crlf",
        "no-final-newline",
        "one-line-body",
        "bom-and-non-ascii",
        "semicolon",
        "trailing-semicolon",
        "form-feed",
        "brackets",
        "backslash",
        "multi-line-string",
        "multi-line-f-string",
        "decorator",
    ],
)
def test_layout(source: str, expected: str) -> None:
    assert wrapped(source) == expected


def test_the_middle_of_a_line_of_statements() -> None:
    assert wrapped("async def f():\n    a(); await b(); c()  # d\n", 1, 1) == (
        "async def f():\n    a()\n    async with guard:\n        await b()\n    c()  # d\n"
    )


def test_a_suite_on_its_headers_line_leaves_it_as_a_whole() -> None:
    source = "async def f():\n    if x: a(); await b()\n    else: c()\n"
    assert wrapped(source, 1, 1, depth=1) == (
        "async def f():\n    if x:\n        a()\n        async with guard:\n            await b()\n    else: c()\n"
    )


def test_text_and_tree_that_disagree_are_discarded() -> None:
    module = ModuleSource("m.py", "async def f():\n    await a()\n")
    block = Block(module.functions[0], "body")
    draft = Draft(module)
    draft.rewrite(block, 0, 0, [Keep(block.statements[0]), Line("b()")])
    draft.copy(block.statements[0])
    with pytest.raises(Refused, match="another tree"):
        draft.finish()


def test_an_edit_outside_of_the_transformed_statement_is_discarded() -> None:
    module = ModuleSource("m.py", "x = 1\nasync def f():\n    await a()\n")
    draft = Draft(module)
    draft.edit(4, 5, "2")
    with pytest.raises(Refused, match="outside of its own"):
        draft.finish()


def test_text_that_does_not_parse_is_discarded() -> None:
    module = ModuleSource("m.py", "x = 1\n")
    draft = Draft(module)
    draft.edit(2, 3, "=(")
    with pytest.raises(Refused, match="does not parse"):
        draft.finish()


def test_overlapping_edits_are_discarded() -> None:
    draft = Draft(ModuleSource("m.py", "x = 1\n"))
    draft.edit(0, 3, "y =")
    draft.edit(2, 4, "=")
    with pytest.raises(Refused, match="overlap"):
        draft.finish()


DIFFS = {
    "plain": ("a.py", "a\nb\nc\n", "a\nB\nc\n"),
    "crlf": ("a.py", "a\r\nb\r\nc\r\n", "a\r\nB\r\nX\r\nc\r\n"),
    "no-final-newline": ("a.py", "a\nb", "a\nb\nc"),
    "newline-added": ("a.py", "a\nb", "a\nb\n"),
    "blank-in-name": ("a b.py", "a\n", "b\n"),
    "folder": ("p/q/a.py", "a\n" * 30 + "x\n", "y\n" + "a\n" * 30 + "z\n"),
    "form-feed-and-separators": ("a.py", "a\f\u2028b\nc\n", "a\f\u2028b\nd\n"),
}


@pytest.mark.parametrize("tool", [["git", "apply", "-p1"], ["patch", "-p1", "--binary", "-s"]], ids=["git", "patch"])
@pytest.mark.parametrize("name", DIFFS)
def test_other_tools_apply_the_diff(name: str, tool: list[str], tmp_path: Path) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    path, old, new = DIFFS[name]
    target = tmp_path / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(old.encode())
    subprocess.run(tool, input=unified_diff(path, old, new).encode(), cwd=tmp_path, check=True)
    assert target.read_bytes() == new.encode()


def test_no_diff_for_equal_texts() -> None:
    assert unified_diff("a.py", "x\n", "x\n") == ""
