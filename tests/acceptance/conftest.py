"""Results are shared: the command runs once per subject and set of options, for all tests of the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import SUBJECTS, Run, run

collect_ignore = ["subjects"]  # programs to be investigated; some of them look like tests

Investigate = Callable[..., Run]


@pytest.fixture(scope="session")
def investigated(tmp_path_factory: pytest.TempPathFactory) -> Investigate:
    """investigated("lost_update", "::scenario", "--runs", "10"): that subject in a directory of its own, once."""
    made: dict[tuple[str, ...], Run] = {}

    def investigate(subject: str, selector: str = "::scenario", *options: str) -> Run:
        key = (subject, selector, *options)
        if key not in made:
            directory = tmp_path_factory.mktemp(subject)
            path = directory / f"{subject}.py"
            path.write_bytes((SUBJECTS / path.name).read_bytes())
            made[key] = run(path.name + selector, "--budget", "6", "--runs", "8", *options, cwd=directory, path=path)
        return made[key]

    return investigate


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], Path]:
    """program("name.py", source): a file with that text in the test's own directory."""

    def write(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
        return path

    return write
