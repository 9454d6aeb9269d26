"""Every sandbox program says what is wrong with it, how to run the tool on it, its natural rate and what is printed."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from math import ceil, comb, floor
from pathlib import Path

import pytest

from tests.sandbox import natural
from tests.sandbox.test_natural_rates import RACY, REPAIRS, RUNS

PROGRAMS = sorted(path.stem for path in natural.SANDBOX.glob("*.py"))
CONTROLS = {"config_cache", "invoice_total"}


def header(program: str) -> dict[str, str]:
    """The header's entries by their first word; continuation lines are joined."""
    text = ast.get_docstring(ast.parse(natural.source(program)))
    assert text, f"{program}.py has no header"
    entries = re.findall(r"^([A-Z][a-z]+):\s+(.*(?:\n {2,}.*)*)", text, re.MULTILINE)
    return {name: " ".join(value.split()) for name, value in entries}


def test_every_program_is_known_to_the_tests() -> None:
    assert set(PROGRAMS) == {"session_store"} | set(RACY) | CONTROLS
    assert set(REPAIRS) == set(PROGRAMS) - CONTROLS
    assert len(RACY) >= 8


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_header_is_complete(program: str) -> None:
    entries = header(program)
    assert list(entries) == ["Wrong", "Run", "Rate", "Prints"]
    assert all(entries.values())


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_command_names_the_program_and_something_that_exists_in_it(program: str) -> None:
    command, target, *options = shlex.split(header(program)["Run"])
    path, _, function = target.partition("::")
    assert (command, path) == ("chaossloth", f"sandbox/{program}.py")
    module = natural.load(program)
    if function:
        assert inspect.iscoroutinefunction(getattr(module, function)) and not options
    else:
        assert options[0::2] == ["--cls", "--method"]
        assert inspect.iscoroutinefunction(getattr(getattr(module, options[1]), options[3]))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_rate_is_a_measurement_with_its_command(program: str) -> None:
    """ "n of 300 runs fail (p %)", where p is n/300, and the command that measures it again."""
    rate = header(program)["Rate"]
    match = re.match(r"(\d+) of (\d+) runs fail \((\d+) %\)", rate)
    assert match, rate
    failed, runs, percent = map(int, match.groups())
    assert runs == 300
    assert percent == round(100 * failed / runs)
    assert f"python tests/sandbox/natural.py {program} 300" in rate


@pytest.mark.parametrize("program", RACY)
def test_a_correct_program_stays_in_its_band(program: str) -> None:
    """At the rate of the header, the band of test_natural_rates is left with probability below 1e-6 on each side."""
    _, low, high = RACY[program]
    rate = int(header(program)["Rate"].split()[0]) / 300
    chance = [comb(RUNS, n) * rate**n * (1 - rate) ** (RUNS - n) for n in range(RUNS + 1)]
    assert sum(chance[: ceil(low * RUNS)]) < 1e-6
    assert sum(chance[floor(high * RUNS) + 1 :]) < 1e-6


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_short_enough_to_be_read_at_a_glance(program: str) -> None:
    assert 25 <= len(natural.source(program).splitlines()) <= 60


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_stands_alone(program: str) -> None:
    """Importable without anything but asyncio and random, so that it can be copied anywhere."""
    tree = ast.parse(natural.source(program))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"asyncio", "random"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_the_demonstration_is_found_in_the_clone_and_in_an_installed_package(tmp_path: Path) -> None:
    from chaossloth.demo import DEMO_CLASS, DEMO_METHOD, demo_path

    assert demo_path(natural.SANDBOX.parent / "chaossloth") == natural.SANDBOX / "session_store.py"
    assert header("session_store")["Run"].endswith(f"--cls {DEMO_CLASS} --method {DEMO_METHOD}")

    packaged = tmp_path / "chaossloth" / "_sandbox" / "session_store.py"
    foreign = tmp_path / "sandbox" / "session_store.py"
    for path in (packaged, foreign):
        path.parent.mkdir(parents=True)
        path.write_text("")
    assert demo_path(tmp_path / "chaossloth") == packaged.resolve()


def test_a_lost_demonstration_is_a_clear_error(tmp_path: Path) -> None:
    from chaossloth.demo import demo_path
    from chaossloth.errors import ToolError

    with pytest.raises(ToolError, match=r"session_store\.py is missing .* reinstall"):
        demo_path(tmp_path / "chaossloth")
