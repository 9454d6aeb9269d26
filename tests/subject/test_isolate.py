"""The command survives every way in which a subject's process can end, hang, or talk nonsense."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaossloth.errors import ReplayDiverged, SubjectUnusable, ToolError, UsageError
from chaossloth.subject.isolate import Limits, Worker

HERE = Path(__file__).parent
LIMITS = Limits(step_s=1.0, memory_bytes=512 << 20, wall_s=60.0)


def make(limits: Limits = LIMITS) -> Worker:
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
    return Worker(limits, module="hostile_worker", env=env)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with make() as started:
        yield started


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def end_of(worker: Worker, op: str, **args: object) -> SubjectUnusable:
    with pytest.raises(SubjectUnusable) as caught:
        worker.call(op, args)
    assert not worker.alive
    return caught.value


def line_of(text: str) -> int:
    lines = (HERE / "hostile_worker.py").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def test_answers_and_environment(worker: Worker) -> None:
    assert worker.call("echo", {"value": ["é", 1, None]}) == {"value": ["é", 1, None], "stdin": "", "hashseed": "0"}


def test_large_messages_both_ways(worker: Worker) -> None:
    text = "\u20ac" * 1_000_000
    assert worker.call("echo", {"value": text})["value"] == text


def test_progress_arrives_in_order(worker: Worker) -> None:
    seen: list[int] = []
    assert worker.call("count", {"n": 50}, on_progress=lambda p: seen.append(p["i"])) == {"n": 50}
    assert seen == list(range(50))


@pytest.mark.parametrize(
    ("kind", "cls", "text"),
    [
        ("usage", UsageError, "no class 'Walet'"),
        ("tool", ToolError, "broken"),
        ("diverged", ReplayDiverged, "step 3"),
        ("value", ToolError, "ValueError: bad"),
        ("broken", ToolError, "whose text raises RuntimeError"),
        ("interrupt", ToolError, "KeyboardInterrupt"),
    ],
)
def test_exceptions_of_handlers_are_typed(worker: Worker, kind: str, cls: type[Exception], text: str) -> None:
    with pytest.raises(cls, match=text) as caught:
        worker.call("fail", {"kind": kind})
    assert cls is not ToolError or "hostile_worker.py" in caught.value.__notes__[0]
    assert worker.call("count", {"n": 1}) == {"n": 1}


def test_unknown_operation_and_answer_that_is_no_json(worker: Worker) -> None:
    with pytest.raises(ToolError, match="no operation 'nothing'"):
        worker.call("nothing")
    with pytest.raises(ToolError, match="'not_json' gave a value that is no JSON"):
        worker.call("not_json")
    assert worker.alive


def test_endless_step_names_the_line(worker: Worker) -> None:
    error = end_of(worker, "spin")
    assert error.reason == "step-never-ended"
    assert f"did not end within 1 s at {HERE / 'hostile_worker.py'}" in error.detail
    assert error.stack[0].endswith(" spin")


def test_endless_import_is_named_as_such(worker: Worker) -> None:
    assert "the import of the subject did not end within 1.5 s" in end_of(worker, "spin_in_import").detail


def test_endless_c_call_is_ended_too(worker: Worker) -> None:
    error = end_of(worker, "spin_in_c")
    assert error.reason == "step-never-ended"
    assert error.stack[0] == f"{HERE / 'hostile_worker.py'}:{line_of('sum(iter')} spin_in_c"


def test_wall_time_names_the_line(worker: Worker) -> None:
    with pytest.raises(SubjectUnusable) as caught:
        worker.call("hang_outside_a_step", timeout_s=0.5)
    assert caught.value.reason == "wall-time"
    assert "stopped after 0.5 s" in caught.value.detail
    assert any("hang_outside_a_step" in entry for entry in caught.value.stack)
    assert not worker.alive


def test_exit_code_and_last_words(worker: Worker) -> None:
    error = end_of(worker, "exit_process", code=3)
    assert error.reason == "exited"
    assert "exit code 3" in error.detail and "going away" in error.detail


def test_exit_code_zero_is_an_end_too(worker: Worker) -> None:
    assert "exit code 0" in end_of(worker, "exit_process", code=0).detail


def test_system_exit_keeps_the_worker(worker: Worker) -> None:
    with pytest.raises(SubjectUnusable, match=r"SystemExit\(4\)") as caught:
        worker.call("system_exit")
    assert caught.value.reason == "exited"
    assert worker.call("count", {"n": 1}) == {"n": 1}


def test_endless_allocation(worker: Worker) -> None:
    error = end_of(worker, "allocate")
    assert error.reason == "memory"
    assert f"more than 512 MB of memory at {HERE / 'hostile_worker.py'}:{line_of('hoard.append')}" in error.detail


def test_output_is_drained_counted_and_never_taken_for_an_answer(worker: Worker) -> None:
    assert worker.call("print_much", {"megabytes": 10}) == {"printed": True}
    worker.close()
    assert worker.output.stdout_bytes >= 20 << 20
    assert len(worker.output.stdout_tail) <= 1 << 16
    assert "the end" in worker.output.stdout_tail


def test_closed_descriptors(worker: Worker) -> None:
    assert end_of(worker, "close_descriptors").reason == "closed-channel"


def test_descriptors_taken_over_by_files_are_not_written_into(worker: Worker, tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    assert end_of(worker, "take_over_descriptors", path=str(target)).reason == "closed-channel"
    assert target.read_text() == "precious"


def test_crash_by_signal(worker: Worker) -> None:
    error = end_of(worker, "segfault")
    assert error.reason == "crashed"
    assert "SIGSEGV" in error.detail
    assert error.stack[0].endswith(" segfault")


def test_killed(worker: Worker) -> None:
    error = end_of(worker, "killed")
    assert error.reason == "crashed"
    assert "SIGKILL, probably by the system" in error.detail


def test_fork_answers_once(worker: Worker) -> None:
    assert worker.call("fork")["forked"] > 0
    assert worker.call("count", {"n": 2}) == {"n": 2}


def test_forked_processes_end_with_the_worker(worker: Worker) -> None:
    pid = worker.call("fork_and_stay")["forked"]
    assert is_running(pid)
    worker.close()
    # The kill is on its way to the orphan; this waits for its end, and would wait for ever if there were none.
    while is_running(pid):
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """False for a zombie too: nobody but the system can reap an orphan."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rsplit(")", 1)[1].split()[0] not in "ZX"


def test_restart_after_each_end_leaks_nothing() -> None:
    worker = make()
    before = open_descriptors()
    for op in ("exit_process", "segfault", "close_descriptors"):
        worker.start()
        end_of(worker, op, **({"code": 1} if op == "exit_process" else {}))
    worker.restart()
    assert worker.call("count", {"n": 1}) == {"n": 1}
    worker.close()
    worker.close()
    assert open_descriptors() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_call_without_start_and_unknown_interpreter(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="not started"):
        make().call("echo")
    before = open_descriptors()
    with pytest.raises(UsageError, match="cannot run the interpreter"):
        Worker(python=str(tmp_path / "no-python")).start()
    assert open_descriptors() == before


def test_interrupt_in_the_command_leaves_the_worker_to_be_closed() -> None:
    program = textwrap.dedent(
        f"""
        import os, signal, sys, threading
        sys.path.insert(0, {str(HERE.parents[1])!r})
        os.environ["PYTHONPATH"] = {os.pathsep.join([str(HERE), str(HERE.parents[1])])!r}
        from chaossloth.subject.isolate import Worker
        worker = Worker(module="hostile_worker").start()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            worker.call("hang_outside_a_step")
        except KeyboardInterrupt:
            print("interrupted", worker.alive)
        worker.close()
        print("closed", worker.alive)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["interrupted", "True", "closed", "False"], done.stderr
    assert done.returncode == 0


def test_late_answer_of_an_interrupted_call_is_dropped(worker: Worker) -> None:
    def interrupt(message: dict[str, int]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.call("count", {"n": 5}, on_progress=interrupt)
    assert worker.call("echo", {"value": 7})["value"] == 7
