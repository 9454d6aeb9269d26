"""Projects in the shapes that people have: the race is found where it is, and the program behaves as under `python`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import FORCED, SUBJECTS, Run, apply_diff, marked, pair_lines, run

Program = Callable[[str, str], Path]
FIND = ("--budget", "4", "--runs", "4", "--no-repair")
CLASS = """
    import asyncio
    import random


    class Tally:
        def __init__(self, start=0):
            self.total = start

        async def add(self, amount):
            seen = self.total  # read
            await asyncio.sleep(random.uniform(0, 0.002))
            self.total = seen + amount  # write
"""
SCENARIO = """

    async def scenario():
        tally = Tally()
        await asyncio.gather(tally.add(2), tally.add(3))
        assert tally.total == 5, tally.total
"""


def text(source: str) -> str:
    return textwrap.dedent(source).lstrip("\n")


def assert_found(result: Run, file: Path, failure: str = "assertion", pattern: str = "lost-update") -> None:
    """Reproduced 20 of 20 times, with its two lines in `file`; not repaired, as asked."""
    assert result.stderr == ""
    assert result.result["outcome"] == "found", result.result["cause"]
    assert result.returncode == 1
    finding = result.finding
    assert (finding["failure"], finding["pattern"]) == (failure, pattern)
    assert pair_lines(finding) == {(file.name, marked(file, "read")), (file.name, marked(file, "write"))}
    assert {access["file"] for access in finding["critical_pair"]} == {str(file)}
    assert (finding["forced"]["controlled"]["runs"], finding["forced"]["controlled"]["failures"]) == (FORCED, FORCED)
    assert finding["repair"] is None
    assert "\n 7 repair      not attempted: --no-repair\n" in result.stdout
    assert "\n+++ " not in result.stdout


def test_race_in_a_module_beside_the_file_is_repaired_there(program: Program, tmp_path: Path) -> None:
    tally = program("tally.py", text(CLASS))
    main = program("main.py", "import asyncio\n\nfrom tally import Tally\n" + text(SCENARIO))
    before = run("main.py::scenario", "--budget", "5", "--runs", "4", cwd=tmp_path)
    assert before.result["outcome"] == "repaired", before.result["cause"]
    assert pair_lines(before.finding) == {("tally.py", marked(tally, "read")), ("tally.py", marked(tally, "write"))}
    diff = before.finding["repair"]["diff"]
    assert diff.startswith("--- a/tally.py\n+++ b/tally.py\n")
    untouched = main.read_bytes()
    apply_diff(diff, tmp_path)
    assert main.read_bytes() == untouched
    after = run("main.py::scenario", "--budget", "5", "--runs", "4", cwd=tmp_path)
    assert after.result["outcome"] == "clean", after.result["cause"]
    assert after.returncode == 0


def test_package_with_relative_imports(program: Program, tmp_path: Path) -> None:
    program("shop/__init__.py", "from .tally import Tally\n\n__all__ = ['Tally']\n")
    program("shop/config.py", "START = 0\n")
    program("shop/sub/__init__.py", "")
    tally = program(
        "shop/tally.py", text(CLASS).replace("import random\n", "import random\n\nfrom .config import START\n")
    )
    app = text(SCENARIO).replace("Tally()", "Tally(START)")
    program("shop/sub/app.py", "import asyncio\n\nfrom .. import Tally\nfrom ..config import START\n\n" + app)
    assert_found(run("shop/sub/app.py::scenario", *FIND, cwd=tmp_path), tally)


def test_src_layout(program: Program, tmp_path: Path) -> None:
    program("pyproject.toml", '[project]\nname = "depot"\n')
    program("src/depot/__init__.py", "")
    program("src/depot/waits.py", "from depot.limits import MOST\n\n\ndef most():\n    return MOST\n")
    program("src/depot/limits.py", "MOST = 0.002\n")
    source = (
        text(CLASS)
        .replace("0.002", "most()")
        .replace("import random\n", "import random\n\nfrom depot.waits import most\n")
    )
    tally = program("src/depot/tally.py", source)
    options = ("--cls", "Tally", "--method", "add", "--args", "(2,)")
    result = run("src/depot/tally.py", *options, *FIND, cwd=tmp_path)
    assert_found(result, tally, "not-serializable")
    assert result.result["target"]["arguments"] == ["(2,)", "(2,)"]


def test_src_layout_from_its_tests(program: Program, tmp_path: Path) -> None:
    program("pyproject.toml", '[project]\nname = "depot"\n')
    program("src/depot/__init__.py", "")
    tally = program("src/depot/tally.py", text(CLASS))
    body = text(SCENARIO).replace("scenario", "test_two")
    program("tests/test_tally.py", "import asyncio\n\nfrom depot.tally import Tally\n\n" + body)
    assert_found(run("tests/test_tally.py::test_two", *FIND, cwd=tmp_path), tally)


def test_dataclass_with_slots(program: Program, tmp_path: Path) -> None:
    source = """
        import asyncio
        import random
        from dataclasses import dataclass, field


        @dataclass(slots=True)
        class Tally:
            total: int = 0
            names: list[str] = field(default_factory=list)

            async def add(self, amount: int) -> int:
                seen = self.total  # read
                await asyncio.sleep(random.uniform(0, 0.002))
                self.total = seen + amount  # write
                return amount
    """
    tally = program("tally.py", text(source))
    result = run("tally.py", "--cls", "Tally", "--method", "add", *FIND, cwd=tmp_path)
    assert_found(result, tally, "not-serializable")


def test_inherited_method(program: Program, tmp_path: Path) -> None:
    source = """
        class Counted(Tally):
            def __init__(self):
                super().__init__(start=10)
                self.__calls = 0

            async def add(self, amount):
                self.__calls += 1
                return await super().add(amount)
    """
    tally = program("tally.py", text(CLASS) + "\n\n" + text(source))
    result = run("tally.py", "--cls", "Counted", "--method", "add", *FIND, cwd=tmp_path)
    assert_found(result, tally, "not-serializable")
    assert result.result["target"]["cls"] == "Counted"


def test_method_that_only_the_base_class_has(program: Program, tmp_path: Path) -> None:
    tally = program("tally.py", text(CLASS))
    program("special.py", "from tally import Tally\n\n\nclass Special(Tally):\n    pass\n")
    result = run("special.py", "--cls", "Special", "--method", "add", *FIND, cwd=tmp_path)
    assert_found(result, tally, "not-serializable")


def test_decorators(program: Program, tmp_path: Path) -> None:
    source = """
        import asyncio
        import functools
        import random

        MADE = []


        def registered(cls):
            MADE.append(cls.__name__)
            return cls


        def counted(function):
            @functools.wraps(function)
            async def wrapper(self, *args):
                result = await function(self, *args)
                return result, function.__name__

            return wrapper


        @registered
        class Tally:
            def __init__(self):
                self._total = 0

            @property
            def total(self):
                return self._total  # read

            @total.setter
            def total(self, value):
                self._total = value  # write

            @counted
            async def add(self, amount: int):
                seen = self.total
                await asyncio.sleep(random.uniform(0, 0.002))
                self.total = seen + amount
    """
    tally = program("tally.py", text(source))
    result = run("tally.py", "--cls", "Tally", "--method", "add", *FIND, cwd=tmp_path)
    assert_found(result, tally, "not-serializable")


def test_script_with_a_main_guard(program: Program, tmp_path: Path) -> None:
    source = """

    async def main():
        tally = Tally()
        await asyncio.gather(tally.add(2), tally.add(3))
        assert tally.total == 5, tally.total


    if __name__ == "__main__":
        asyncio.run(main())
    """
    script = program("script.py", text(CLASS) + textwrap.dedent(source))
    result = run("script.py", *FIND, cwd=tmp_path)
    assert_found(result, script)
    assert "main" in result.result["target"]["how_chosen"]
    assert result.result["target"]["test"] == "main"


def test_sync_test_function_with_its_own_loop(program: Program, tmp_path: Path) -> None:
    source = "\n\ndef test_two():\n    asyncio.run(scenario())\n"
    test = program("test_tally.py", text(CLASS) + textwrap.dedent(SCENARIO) + source)
    result = run("test_tally.py::test_two", *FIND, cwd=tmp_path)
    assert_found(result, test)
    assert result.result["target"]["test"] == "test_two"


def test_async_test_without_fixtures(program: Program, tmp_path: Path) -> None:
    source = textwrap.dedent(SCENARIO).replace("async def scenario", "@pytest.mark.asyncio\nasync def test_two")
    test = program("test_tally.py", text(CLASS).replace("import random\n", "import random\n\nimport pytest\n") + source)
    assert_found(run("test_tally.py::test_two", *FIND, cwd=tmp_path), test)


def test_test_case_method(program: Program, tmp_path: Path) -> None:
    source = """

    class TallyTest(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self):
            self.tally = Tally()

        async def test_two(self):
            await asyncio.gather(self.tally.add(2), self.tally.add(3))
            self.assertEqual(self.tally.total, 5)
    """
    body = text(CLASS).replace("import random\n", "import random\nimport unittest\n") + textwrap.dedent(source)
    test = program("test_tally.py", body)
    assert_found(run("test_tally.py::TallyTest::test_two", *FIND, cwd=tmp_path), test)


LEAKING = """
    import asyncio
    import random

    served = 0
    log = []


    async def serve():
        global served
        log.append("served")
        seen = served  # read
        await asyncio.sleep(random.uniform(0, 0.002))
        served = seen + 1  # write


    async def scenario():
        assert served == 0 and not log, "not the first run of this module"
        await asyncio.gather(serve(), serve())
        assert served == 2, served
"""


def test_module_state_does_not_leak_between_executions(program: Program, tmp_path: Path) -> None:
    file = program("leaking.py", text(LEAKING))
    result = run("leaking.py::scenario", *FIND, cwd=tmp_path)
    assert_found(result, file)
    assert "not the first run" not in result.stdout
    assert result.finding["message"] == "1"


def test_module_state_of_a_correct_program(program: Program, tmp_path: Path) -> None:
    locked = LEAKING.replace("    log = []\n", "    log = []\n    gate = asyncio.Lock()\n").replace(
        """
        seen = served  # read
        await asyncio.sleep(random.uniform(0, 0.002))
        served = seen + 1  # write
""",
        """
        async with gate:
            seen = served
            await asyncio.sleep(random.uniform(0, 0.002))
            served = seen + 1
""",
    )
    program("leaking.py", text(locked))
    result = run("leaking.py::scenario", *FIND, cwd=tmp_path)
    assert result.result["outcome"] == "clean", result.result["cause"]
    assert result.returncode == 0
    assert result.result["natural"]["failures"] == 0


@pytest.mark.parametrize("name", ["calendar.py", "queue.py"])
def test_file_named_like_a_standard_module(tmp_path: Path, name: str) -> None:
    source = (SUBJECTS / "lost_update.py").read_text(encoding="utf-8").replace("# critical: ", "# ")
    file = tmp_path / name
    file.write_text(source, encoding="utf-8")
    assert_found(run(f"{name}::scenario", *FIND, cwd=tmp_path), file)


def test_directory_with_spaces_and_letters_of_the_world(tmp_path: Path) -> None:
    directory = tmp_path / "mein Lager – größer"
    directory.mkdir()
    source = (SUBJECTS / "lost_update.py").read_text(encoding="utf-8").replace("# critical: ", "# ")
    (directory / "stück.py").write_text(source, encoding="utf-8")
    result = run("mein Lager – größer/stück.py::scenario", *FIND, cwd=tmp_path)
    assert_found(result, directory / "stück.py")
    assert result.result["reproduce"].startswith("chaossloth 'mein Lager – größer/stück.py::scenario'")
