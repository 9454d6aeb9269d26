"""Each test as in a worker process of its own: what the instrumentation knows of earlier subjects is forgotten."""

from __future__ import annotations

import pytest

from chaossloth.subject.attributes import exposed_modules, module_attribute_stores
from chaossloth.subject.outside import contexts_shared


@pytest.fixture(autouse=True)
def no_earlier_subject() -> None:
    for known in (exposed_modules, module_attribute_stores, contexts_shared):
        known.clear()
