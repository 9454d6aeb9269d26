"""Tests share one process, and with it the sources of randomness and the watch over primitives."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from chaossloth.subject.primitives import watch


@pytest.fixture(autouse=True)
def shared_state_as_found() -> Iterator[None]:
    """Hypothesis seeds `random`, which later runs would take for the subject's own wish; an executor names tasks."""
    named = watch.task_name
    yield
    random.seed()
    watch.task_name = named
