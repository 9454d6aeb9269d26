"""Shared by all groups; fixtures of one group belong into that group's own conftest.py."""

from __future__ import annotations

import random
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
