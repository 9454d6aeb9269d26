"""CPU time of `chaossloth --help`, checked against its limit of 0.2 s.

    python benchmark/startup.py [--runs 10] [--limit 0.2] [COMMAND ...]

CPU time is user plus system time of the child process as the kernel accounts it to wait4(2); unlike wall time it holds
no waits for other processes. The minimum of the runs is compared with the limit, because a disturbance (a cold cache, a
busy sibling core) only ever adds; the median is printed beside it. One run ahead of the measured ones compiles the byte
code.

Exit code: 0 within the limit, 1 above it, 2 when the command itself fails (nothing was measured then).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

__all__ = ["CommandFailed", "cpu_seconds", "main"]

HELP = [sys.executable, "-m", "chaossloth", "--help"]


class CommandFailed(Exception):
    """The measured command did not exit with 0."""


def cpu_seconds(command: list[str]) -> float:
    """User plus system time, in seconds, of one run of `command`. Raises CommandFailed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it is reaped: Popen must not wait for it again
    if process.returncode != 0:
        raise CommandFailed(f"exit code {process.returncode} from {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="CPU time of `chaossloth --help`, checked against a limit.")
    parser.add_argument("--runs", type=int, default=10, help="measured runs (10)")
    parser.add_argument("--limit", type=float, default=0.2, help="seconds of CPU time (0.2)")
    parser.add_argument("command", nargs="*", default=HELP, help="what to measure (python -m chaossloth --help)")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    try:
        cpu_seconds(options.command)
        times = [cpu_seconds(options.command) for _ in range(options.runs)]
    except (CommandFailed, OSError) as fault:
        print(f"startup: not measured: {fault}", file=sys.stderr)
        return 2
    within = min(times) <= options.limit
    print(
        f"startup: {min(times):.3f} s CPU at least, {statistics.median(times):.3f} s median of {options.runs} runs; "
        f"limit {options.limit:.3f} s: {'kept' if within else 'EXCEEDED'}"
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
