"""The token of a report: the same failure again, a clear error once the program is another."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import FORCED, Run, refused, run

Investigate = Callable[..., Run]


REPLAYED = pytest.mark.parametrize("subject", ["lost_update", "double_init", "lock_order", "wakeup"])


@pytest.fixture(scope="session")
def replayed(investigated: Investigate) -> Callable[[str], Run]:
    """The reproduce line of a subject's report, run once as it is printed."""
    made: dict[str, Run] = {}

    def replay(subject: str) -> Run:
        if subject not in made:
            first = investigated(subject)
            words = shlex.split(first.result["reproduce"])
            assert words[0] == "chaossloth"
            made[subject] = run(*words[1:], cwd=first.path.parent, path=first.path)
        return made[subject]

    return replay


@REPLAYED
def test_replay_has_an_outcome_that_claims_no_repair(replayed: Callable[[str], Run], subject: str) -> None:
    """No candidate was made, so none was refused: the failure is found, repair was no question."""
    again = replayed(subject)
    assert again.returncode == 1
    assert again.result["outcome"] == "found"
    assert "every candidate was refused" not in again.words


@REPLAYED
def test_replay_counts_its_executions(replayed: Callable[[str], Run], subject: str) -> None:
    again = replayed(subject)
    assert "0 executions" not in again.words
    assert again.result["verdict"]["executions"] >= 1


@REPLAYED
def test_replay_prints_its_phases_in_order(replayed: Callable[[str], Run], subject: str) -> None:
    numbers = [
        int(line[1]) for line in replayed(subject).stdout.splitlines() if line[:1] == " " and line[1:2].isdigit()
    ]
    assert numbers == sorted(numbers)


@REPLAYED
def test_reproduce_line_shows_the_same_failure(
    investigated: Investigate, replayed: Callable[[str], Run], subject: str
) -> None:
    first, again = investigated(subject), replayed(subject)
    assert again.returncode == 1
    old, new = first.finding, again.finding
    for name in ("failure", "label", "pattern", "token", "message"):
        if "0x" not in old[name]:
            assert new[name] == old[name], name
    assert (new["forced"]["controlled"]["runs"], new["forced"]["controlled"]["failures"]) == (FORCED, FORCED)
    lines = [[(access["line"], access["access"]) for access in finding["critical_pair"]] for finding in (old, new)]
    assert lines[0] == lines[1]
    assert again.result["natural"] is None


def test_token_of_an_always_failing_program(investigated: Investigate) -> None:
    first = investigated("always_fails")
    again = run(*shlex.split(first.result["reproduce"])[1:], cwd=first.path.parent, path=first.path)
    assert (again.result["outcome"], again.returncode) == ("not-a-race", 1)
    assert "no execution on the controlled loop" not in again.words  # the sentence beside it counts several


def test_token_and_another_program(investigated: Investigate, tmp_path: Path) -> None:
    """The source changed so that the recorded choices meet other ones: named, and no failure is claimed."""
    first = investigated("double_init")
    source = first.path.read_text(encoding="utf-8")
    changed = source.replace("            await fresh.unlock()\n", "").replace("in range(4)", "in range(0)")
    assert changed != source
    (tmp_path / first.path.name).write_text(changed, encoding="utf-8")
    token = first.finding["token"]
    sentence = refused(run(f"{first.path.name}::scenario", "--replay", token, cwd=tmp_path))
    assert token in sentence or "--replay" in sentence
    assert "chang" in sentence or "another program" in sentence


def test_token_and_the_repaired_program(investigated: Investigate, tmp_path: Path) -> None:
    """The token's failure must not be claimed of a program that has it no more: it passes, or the token is refused."""
    first = investigated("lost_update")
    fixed = (first.path.parent / first.path.name).read_text(encoding="utf-8")
    fixed = fixed.replace(
        "        on_hand = await self._fetch()\n        await self._store(on_hand + count)\n",
        "        await line_noise(0.001)\n        self.shelf['bolts'] += count\n",
    )
    (tmp_path / first.path.name).write_text(fixed, encoding="utf-8")
    result = run(f"{first.path.name}::scenario", "--replay", first.finding["token"], cwd=tmp_path)
    assert result.returncode in (0, 2)
    assert "Traceback" not in result.stderr
    if result.returncode == 2:
        assert "chang" in refused(result)
    else:
        assert result.result["outcome"] == "clean"
        assert result.result["verdict"]["word"] != "proven"


def test_same_seed_same_token(investigated: Investigate) -> None:
    """Two processes, one answer: what decides the search is the seed, not the machine or hash randomization."""
    first = investigated("wakeup")
    again = investigated("wakeup", "::scenario", "--no-repair")
    assert again.finding["token"] == first.finding["token"]
    assert again.finding["executions_to_find"] == first.finding["executions_to_find"]
