"""Shared by all groups; fixtures of one group belong into that group's own conftest.py."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Iterator

import pytest

from chaossloth.subject.primitives import watch


@pytest.fixture(autouse=True)
def shared_state_as_found() -> Iterator[None]:
    """Tests share one process: Hypothesis seeds `random`, which later runs would take for the subject's own wish; an
    executor names the watched tasks."""
    named = watch.task_name
    yield
    random.seed()
    watch.task_name = named


_PATIENCE_S = 10.0


def pytest_unconfigure() -> None:
    """A test that fails may leave a thread that waits for ever; the interpreter would wait for it and say nothing.

    Such threads are named, and the run ends as failed.
    """
    left = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in left:
        thread.join(_PATIENCE_S / len(left))
    if left := [thread for thread in left if thread.is_alive()]:
        print(f"\nthreads that tests have left behind: {', '.join(thread.name for thread in left)}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
