"""The command `chaossloth`: options in, a report and an exit code out.

Nothing here knows how races are found; `chaossloth.pipeline.investigate` does, imported when the options are known to
be right. `--help` and every usage error must come at once, so this module imports click and nothing heavier.

Who may write where: evidence and result go to stdout, everything else to stderr. With `--json -` stdout carries the
document alone. Exit codes are those of the JSON contract; every message is one sentence, tracebacks only with -vv.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from chaossloth.config import VERSION, Options, load_defaults, merge, validated
from chaossloth.errors import ReplayDiverged, SubjectUnusable, ToolError, UsageError

if TYPE_CHECKING:
    from chaossloth.evidence import Investigation
    from chaossloth.report.progress import TerminalObserver

__all__ = ["main"]

EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_FAULT = 70
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_NO_READER = 141  # 128 + SIGPIPE

_HEADINGS = _SUBJECT, _SEARCH, _REPAIR, _OUTPUT = "What to run", "How far to search", "Repair", "Output"

_EPILOG = """\
\b
Examples:
  chaossloth
      the demonstration
  chaossloth store.py --cls Store --method put
      two concurrent calls of Store.put on one fresh object
  chaossloth store.py --cls Store --method put --method drop \\
             --args "('k', 1)" --args "('k',)"
      the two methods mixed, each with its own arguments
  chaossloth tests/test_store.py::test_two_writers
      one test function
  chaossloth store.py -q --json result.json
      a few lines for people, everything for machines

\b
Exit codes:
  0   nothing failed within the bounds that are printed
  1   a failure was found: repaired, not repaired, or not a race
  2   wrong use
  3   inconclusive: a limit stopped the work, nothing is claimed
  70  a fault of chaossloth itself

\b
Defaults for a project, in pyproject.toml:
  [tool.chaossloth]
  calls = 3
  budget = 60
  include = ["anyio"]
  repair = false
"""


class _Option(click.Option):
    """An option that knows under which heading of --help it belongs."""

    def __init__(self, *args: Any, heading: str = _OUTPUT, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Names and help as written: Click would append ranges in the form [1<=x<=26]."""
        record = super().get_help_record(ctx)
        return (record[0], self.help or "") if record is not None else None


class _Command(click.Command):
    """Click's command with help grouped by purpose and errors in one sentence."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups.setdefault(getattr(parameter, "heading", _OUTPUT), []).append(record)
        for heading, records in sorted(groups.items(), key=lambda group: _HEADINGS.index(group[0])):
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(self.epilog or "")

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run and exit the process with the code; usage errors as `chaossloth: sentence` on stderr."""
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            code = super().main(args=words, prog_name="chaossloth", obj=("chaossloth", *words), **extra)
        except click.ClickException as error:
            code = _complain(f"{_one_line(error.format_message())} (chaossloth --help lists the options)", EXIT_USAGE)
        except click.Abort:
            code = _complain("aborted", EXIT_INTERRUPTED)
        sys.exit(code)


def _option(*names: str, heading: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, cls=_Option, heading=heading, **settings)


@click.command(
    cls=_Command,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
)
@click.argument("target", required=False, metavar="[TARGET]")
@_option("--cls", heading=_SUBJECT, metavar="NAME", help="Class whose methods are called concurrently.")
@_option(
    "--method",
    "methods",
    heading=_SUBJECT,
    multiple=True,
    metavar="NAME",
    help="Async method of --cls; repeat it to mix methods.",
)
@_option(
    "--calls",
    heading=_SUBJECT,
    type=click.IntRange(1, 26),
    metavar="N",
    help="Concurrent calls on one fresh object.  [default: 2]",
)
@_option(
    "--args",
    heading=_SUBJECT,
    multiple=True,
    metavar="TUPLE",
    help="Arguments as a Python literal tuple: once for all calls, or once for each.",
)
@_option("--setup", heading=_SUBJECT, metavar="MODULE:FUNCTION", help="Function that returns the object to call.")
@_option(
    "--runs",
    heading=_SEARCH,
    type=click.IntRange(0, 100_000),
    metavar="N",
    help="Natural runs on the stock event loop.  [default: 25]",
)
@_option(
    "--budget",
    "budget_s",
    heading=_SEARCH,
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Wall-clock time for search and repair.  [default: 20]",
)
@_option(
    "--executions",
    heading=_SEARCH,
    type=click.IntRange(1),
    metavar="N",
    help="Executions of the search under each label, at most; a sweep with --cancel has as many again. "
    "[default: 300 stock, 300 latency, 1500 reorder; four times as many for a sweep]",
)
@_option(
    "--all",
    "all_failures",
    heading=_SEARCH,
    is_flag=True,
    help="Go on after the first failure: all distinct failures (by critical pair), at most 20. "
    "Repairs are searched for the first.",
)
@_option(
    "--seed", heading=_SEARCH, type=click.IntRange(0), metavar="N", help="Seed of every random choice.  [default: 0]"
)
@_option(
    "--needs",
    heading=_SEARCH,
    type=click.Choice(["stock", "latency", "reorder"]),
    metavar="LEVEL",
    help="Orders to try. stock: completions come late; latency: also awaits take time; "
    "reorder: also what FIFO forbids.  [default: reorder]",
)
@_option(
    "--include",
    heading=_SEARCH,
    multiple=True,
    metavar="PACKAGE",
    help="Explore code of this installed package too; may be repeated.",
)
@_option(
    "--cancel",
    heading=_SEARCH,
    is_flag=True,
    help="If nothing fails: also cancel each call under test (without --cls: each task that the main task starts) "
    "at each of its suspensions. Its own CancelledError is no failure; anything else is.",
)
@_option(
    "--victims",
    heading=_SEARCH,
    metavar="PATTERN",
    help="With --cancel: cancel the tasks whose name, or coroutine's name, matches, e.g. 'request-*'.",
)
@_option(
    "--double-cancel",
    "double_cancel",
    heading=_SEARCH,
    is_flag=True,
    help="With --cancel: also cancel a second time, while a task cleans up after the first.",
)
@_option(
    "--replay",
    heading=_SEARCH,
    metavar="TOKEN",
    help="Run the one interleaving that TOKEN, from an earlier report, stands for.",
)
@_option(
    "--memory",
    "memory_mb",
    heading=_SEARCH,
    type=click.IntRange(64, 1 << 30),
    metavar="MB",
    help="Memory limit of the program under test.  [default: 2048]",
)
@_option(
    "--step-limit",
    "step_limit_s",
    heading=_SEARCH,
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Longest time between two suspensions of the program.  [default: 10]",
)
@_option("--no-repair", "no_repair", heading=_REPAIR, is_flag=True, help="Find and explain only.")
@_option(
    "--apply", heading=_REPAIR, is_flag=True, help="Write the verified patch, if the file is still what was analysed."
)
@_option(
    "--json",
    "json_path",
    heading=_OUTPUT,
    metavar="FILE",
    help="Also write the result as JSON; - writes it to stdout, alone.",
)
@_option("-q", "--quiet", heading=_OUTPUT, is_flag=True, help="Diff, outcome, verdict and reproducing command only.")
@_option(
    "-v",
    "--verbose",
    heading=_OUTPUT,
    count=True,
    help="Longer traces, refused candidates, timings; -vv for debugging.",
)
@click.version_option(VERSION, "--version", prog_name="chaossloth", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, /, **given: Any) -> int:
    """Find an asyncio race, reproduce it on demand, name its cause and repair it.

    TARGET is path/to/file.py, or path/to/file.py::name for one async function or test. Without --cls and ::name,
    whatever is async in the file is discovered, and the report says what was chosen. Without TARGET the built-in
    demonstration is investigated.
    """
    try:
        options = _options(given, ctx.obj or ("chaossloth",))
    except UsageError as error:
        return _complain(str(error), EXIT_USAGE)
    return _run(options)


def _options(given: dict[str, Any], command: tuple[str, ...]) -> Options:
    """Command line over pyproject table over defaults. Raises UsageError."""
    quiet, verbose, no_repair = given.pop("quiet"), given.pop("verbose"), given.pop("no_repair")
    if quiet and verbose:
        raise UsageError("-q and -v contradict each other; pass one of them")
    # By identity: `--runs 0` is given, although 0 == False.
    typed = {name: value for name, value in given.items() if not (value is None or value is False or value == ())}
    if quiet or verbose:
        typed["verbosity"] = -1 if quiet else min(verbose, 2)
    if no_repair:
        typed["repair"] = False
    options = validated({**merge(load_defaults(_start(typed.get("target"))), typed), "command": command})
    if options.apply and not options.repair:
        raise UsageError("--apply writes a patch and --no-repair makes none; pass one of them")
    if options.json_path in ("/dev/stdout", "/dev/fd/1"):  # the same descriptor, so the same promise
        options = _replaced(options, json_path="-")
    if options.json_path is not None:
        from chaossloth.report.json import check_writable

        check_writable(options.json_path)
    return options


def _replaced(options: Options, **changes: Any) -> Options:
    from dataclasses import replace

    return replace(options, **changes)


def _start(target: str | None) -> Path:
    """Where the search for pyproject.toml begins: the folder of the target, else the working directory."""
    path = Path(target.partition("::")[0]) if target else Path()
    return path if path.is_dir() else path.parent


def _run(options: Options) -> int:
    """Investigate and report; every exception becomes its sentence and exit code here."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
    from chaossloth.report.progress import OutputClosed

    try:
        return _investigate(options)
    except UsageError as error:
        return _complain(str(error), EXIT_USAGE)
    except ReplayDiverged as error:
        if options.replay is not None:  # the token is of another program: not what was asked for can be done
            return _complain(str(error), EXIT_USAGE)
        return _complain(f"inconclusive: {error}", EXIT_INCONCLUSIVE)
    except SubjectUnusable as error:
        return _complain(f"inconclusive: {error.detail}", EXIT_INCONCLUSIVE)
    except KeyboardInterrupt:
        return _complain("aborted", EXIT_INTERRUPTED)
    except OutputClosed as closed:
        _abandon_stdout()
        if isinstance(closed.error, BrokenPipeError):
            return EXIT_NO_READER
        return _complain(f"the report cannot be written to stdout: {closed.error.strerror}", EXIT_FAULT)
    except Exception as error:
        return _fault(error, options.verbosity)


def _interrupt(*_: object) -> None:
    """SIGTERM (a CI job that is cancelled) is met like Ctrl-C: what is known is reported, the worker is ended."""
    raise KeyboardInterrupt


def _investigate(options: Options) -> int:
    observer = _observer(options)
    try:
        from chaossloth.pipeline import investigate

        investigation: Investigation = investigate(options, observer)
    finally:
        observer.stop()
    if options.json_path is not None:  # first: it must exist even where the terminal has gone
        _write_document(options.json_path, investigation)
    if options.json_path != "-" and not observer.closed:
        _report(options, investigation, observer)
    return investigation.exit_code


def _write_document(path: str, investigation: Investigation) -> None:
    from chaossloth.report.json import write_json
    from chaossloth.report.progress import OutputClosed

    try:
        write_json(investigation, path)
    except OSError as error:
        if path == "-":
            raise OutputClosed(error) from None
        raise ToolError(f"--json {path} cannot be written any more: {error.strerror}") from error


def _observer(options: Options) -> TerminalObserver:
    from chaossloth.report.progress import TerminalObserver

    return TerminalObserver(
        _stdout(),
        sys.stderr,
        evidence=options.json_path != "-" and options.verbosity >= 0,
        notes=options.verbosity > 0,
        stop_when_closed=options.json_path is None,
    )


def _report(options: Options, investigation: Investigation, observer: TerminalObserver) -> None:
    from chaossloth.report.progress import OutputClosed
    from chaossloth.report.terminal import render
    from chaossloth.report.text import make_console

    written = [f"JSON to {options.json_path}"] if options.json_path else []
    out = _stdout()
    try:
        render(investigation, make_console(out), options.verbosity, already=observer.printed, written=written)
        out.flush()
    except OSError as error:
        if options.json_path is None or not isinstance(error, BrokenPipeError):
            raise OutputClosed(error) from None
        _abandon_stdout()  # the document is whole; nobody misses the rest


def _stdout() -> IO[str]:
    """stdout, or the null device where the process was started without one."""
    return sys.stdout if sys.stdout is not None else open(os.devnull, "w", encoding="utf-8")


def _abandon_stdout() -> None:
    """Point stdout at the null device, so that the interpreter's last flush finds no broken pipe either."""
    if sys.stdout is None:
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _fault(error: Exception, verbosity: int) -> int:
    if verbosity > 1:
        import traceback

        traceback.print_exception(error)
    name = "" if isinstance(error, ToolError) else type(error).__name__
    words = _one_line(": ".join(part for part in (name, str(error)) if part))
    return _complain(f"internal fault: {words} (please report; rerun with -vv for the traceback)", EXIT_FAULT)


def _complain(sentence: str, code: int) -> int:
    """Say why on stderr, subject text made harmless; return `code`."""
    from chaossloth.report.text import escape, prepare_stream

    if sys.stderr is not None:
        prepare_stream(sys.stderr)
        click.echo(f"chaossloth: {escape(_one_line(sentence))}", err=True)
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())
