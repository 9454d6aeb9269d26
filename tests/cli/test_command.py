"""The command with an investigation made by hand in place of the pipeline's."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chaossloth.cli import main
from chaossloth.config import Options
from chaossloth.errors import ReplayDiverged, SubjectUnusable, ToolError, UsageError
from chaossloth.evidence import Investigation
from chaossloth.report.terminal import phase_lines
from tests.report import samples

Run = Callable[..., Result]


class Pipeline(types.ModuleType):
    """Stands for `chaossloth.pipeline`: remembers the options, walks through the phases, answers `result`."""

    def __init__(self) -> None:
        super().__init__("chaossloth.pipeline")
        self.options: Options | None = None
        self.result: Investigation | BaseException = samples.investigation()

    def investigate(self, options: Options, observer: Any) -> Investigation:
        self.options = options
        if isinstance(self.result, BaseException):
            raise self.result
        lines = phase_lines(self.result, width=100)
        for number in range(9):
            observer.phase_started(number, "phase")
            observer.phase_done(number, "phase", lines[number])
        return self.result


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    fake = Pipeline()
    monkeypatch.setitem(sys.modules, "chaossloth.pipeline", fake)
    return fake


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(main, list(args))

    return invoke


def test_every_option_arrives(pipeline: Pipeline, run: Run) -> None:
    subject = ["a.py", "--cls", "A", "--method", "m", "--method", "n", "--calls", "3", "--args", "(1,)"]
    search = ["--setup", "mod:f", "--runs", "0", "--budget", "1.5", "--seed", "0", "--needs", "latency"]
    limits = ["--include", "x", "--include", "y", "--replay", "tok", "--memory", "100", "--step-limit", "2"]
    limits += ["--executions", "40", "--all"]
    words = [*subject, *search, *limits, "--apply", "-vv"]
    assert run(*words).exit_code == 0
    assert pipeline.options == Options(
        target="a.py",
        cls="A",
        methods=("m", "n"),
        calls=3,
        args=("(1,)",),
        setup="mod:f",
        runs=0,
        budget_s=1.5,
        executions=40,
        all_failures=True,
        seed=0,
        include=("x", "y"),
        replay="tok",
        apply=True,
        verbosity=2,
        needs="latency",
        memory_mb=100,
        step_limit_s=2.0,
        command=("chaossloth", *words),
    )


def test_defaults_are_the_demonstration(pipeline: Pipeline, run: Run) -> None:
    assert run().exit_code == 0
    assert pipeline.options == Options()


def test_table_beside_the_target_gives_defaults(pipeline: Pipeline, run: Run, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.chaossloth]\nruns = 5\nseed = 9\nrepair = false\n")
    assert run("inner/a.py", "--seed", "0").exit_code == 0
    assert pipeline.options is not None
    assert (pipeline.options.runs, pipeline.options.seed, pipeline.options.repair) == (5, 0, False)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("clean", 0),
        ("found", 1),
        ("repaired", 1),
        ("no-repair", 1),
        ("not-a-race", 1),
        ("inconclusive", 3),
        ("error", 70),
    ],
)
def test_exit_codes(pipeline: Pipeline, run: Run, outcome: str, code: int) -> None:
    pipeline.result = samples.OUTCOMES[outcome]()
    result = run()
    assert result.exit_code == code
    assert f" outcome    {outcome.replace('-', ' ')}: " in result.stdout
    assert result.stderr == ""


def test_each_phase_is_printed_once_and_in_order(pipeline: Pipeline, run: Run) -> None:
    pipeline.result = samples.repaired()
    numbered = [line.split()[0] for line in run().stdout.splitlines() if line[:2].strip().isdigit()]
    assert numbered == list("123456789")


def test_quiet(pipeline: Pipeline, run: Run) -> None:
    pipeline.result = samples.repaired()
    lines = run("-q").stdout.splitlines()
    assert lines[0] == "--- a/store.py"
    assert lines[-1].startswith(" reproduce  chaossloth store.py")


@pytest.mark.parametrize("more", [(), ("-q",), ("-vv",)])
def test_json_on_stdout_is_alone(pipeline: Pipeline, run: Run, more: tuple[str, ...]) -> None:
    pipeline.result = samples.repaired()
    result = run("--json", "-", *more)
    assert json.loads(result.stdout)["outcome"] == "repaired"
    assert result.stderr == ""
    assert result.exit_code == 1


def test_json_file_and_report(pipeline: Pipeline, run: Run, tmp_path: Path) -> None:
    result = run("--json", "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["outcome"] == "clean"
    assert " 9 report      source unchanged · JSON to out.json" in result.stdout.splitlines()


def test_unwritable_json_is_refused_before_the_work(pipeline: Pipeline, run: Run) -> None:
    result = run("--json", "missing/out.json")
    assert result.exit_code == 2
    assert result.stderr == "chaossloth: --json missing/out.json cannot be written: No such file or directory\n"
    assert pipeline.options is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--cals", "3"), "No such option"),
        (("a", "b"), "Got unexpected extra argument (b)"),
        (("--calls", "x"), "Invalid value for '--calls'"),
        (("--calls", "0"), "Invalid value for '--calls'"),
        (("--executions", "0"), "Invalid value for '--executions': 0 is not in the range x>=1"),
        (("--executions", "1.5"), "Invalid value for '--executions'"),
        (("--budget", "nan"), "--budget nan must be a number of seconds above 0"),
        (("--step-limit", "inf"), "--step-limit inf must be a number of seconds above 0"),
        (("--budget", "0"), "Invalid value for '--budget'"),
        (("--needs", "more"), "Invalid value for '--needs'"),
        (("--cls", "A"), "--cls needs a TARGET"),
        (("-q", "-v"), "-q and -v contradict each other"),
        (("--apply", "--no-repair"), "--apply writes a patch and --no-repair makes none"),
    ],
)
def test_wrong_use_is_one_sentence_and_2(pipeline: Pipeline, run: Run, args: tuple[str, ...], words: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("chaossloth: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert pipeline.options is None


def test_usage_error_of_the_pipeline(pipeline: Pipeline, run: Run) -> None:
    pipeline.result = UsageError("a.py does not exist;\n check the \x1b[31mpath")
    result = run("a.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "chaossloth: a.py does not exist; check the \\x1b[31mpath\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("two engines disagree"), "two engines disagree"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_fault_is_one_sentence_and_70(pipeline: Pipeline, run: Run, error: Exception, words: str) -> None:
    pipeline.result = error
    result = run()
    sentence = f"chaossloth: internal fault: {words} (please report; rerun with -vv for the traceback)\n"
    assert (result.exit_code, result.stdout, result.stderr) == (70, "", sentence)
    debugging = run("-vv").stderr
    assert debugging.startswith("Traceback (most recent call last):")
    assert debugging.endswith(sentence)


def test_lost_subject_is_inconclusive(pipeline: Pipeline, run: Run) -> None:
    pipeline.result = SubjectUnusable("exited", "the subject called os._exit(3)")
    result = run()
    assert (result.exit_code, result.stderr) == (3, "chaossloth: inconclusive: the subject called os._exit(3)\n")


def test_a_token_of_another_program_is_wrong_use(pipeline: Pipeline, run: Run) -> None:
    """The tool is not at fault: the token asked for is refused; without one, a search's own replays disagree."""
    pipeline.result = ReplayDiverged("s0:zzz: another path than the recorded one")
    asked = run("store.py", "--replay", "s0:zzz")
    assert (asked.exit_code, asked.stderr) == (2, "chaossloth: s0:zzz: another path than the recorded one\n")
    searched = run("store.py")
    assert searched.exit_code == 3
    assert searched.stderr == "chaossloth: inconclusive: s0:zzz: another path than the recorded one\n"


def test_second_interrupt_aborts(pipeline: Pipeline, run: Run) -> None:
    pipeline.result = KeyboardInterrupt()
    result = run()
    assert (result.exit_code, result.stderr) == (130, "chaossloth: aborted\n")


def test_first_interrupt_reports_what_is_known(pipeline: Pipeline, run: Run) -> None:
    pipeline.result = samples.inconclusive(interrupted=True)
    result = run()
    assert result.exit_code == 3
    assert " outcome    interrupted, this is what is known so far · inconclusive" in result.stdout


def test_document_that_cannot_be_written_any_more(pipeline: Pipeline, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    def investigate(options: Options, observer: Any) -> Investigation:
        folder.rmdir()
        return samples.investigation()

    pipeline.investigate = investigate  # type: ignore[method-assign]
    result = run("--json", "out/x.json")
    assert result.exit_code == 70
    assert "--json out/x.json cannot be written any more: No such file or directory" in result.stderr


def test_help_is_grouped_and_complete(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    headings = ["What to run:", "How far to search:", "Repair:", "Output:", "Examples:", "Exit codes:"]
    positions = [result.stdout.index(heading) for heading in headings]
    assert positions == sorted(positions)
    for parameter in main.params:
        assert parameter.name == "target" or max(parameter.opts, key=len) in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_version(run: Run) -> None:
    assert run("--version").stdout == "chaossloth 0.1.0\n"
