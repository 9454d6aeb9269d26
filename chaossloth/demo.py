"""Where the demonstration's subject is: `sandbox/session_store.py`, of which there is exactly one source file.

A wheel carries that file inside the package (`_sandbox/`, put there by the build: see pyproject.toml), a clone has it
in `sandbox/` beside the package. The packaged file is looked for first: beside an installed package, in site-packages,
a folder called `sandbox` may belong to somebody else.
"""

from __future__ import annotations

from pathlib import Path

from chaossloth.errors import ToolError

__all__ = ["DEMO_CLASS", "DEMO_METHOD", "demo_path"]

DEMO_CLASS = "SharedSessionStore"
DEMO_METHOD = "update_session"
_FILE = "session_store.py"


def demo_path(package: Path | None = None) -> Path:
    """Absolute path of the demonstration's subject.

    package: directory of the chaossloth package; None means the one that is running.
    Raises ToolError, naming both places, when the installation has lost the file.
    """
    package = (package or Path(__file__).parent).resolve()
    places = (package / "_sandbox" / _FILE, package.parent / "sandbox" / _FILE)
    for place in places:
        if place.is_file():
            return place
    raise ToolError(
        f"the demonstration {_FILE} is missing from this installation (looked at {places[0]} and {places[1]}); "
        "reinstall chaossloth, or pass a file of your own: chaossloth path/to/file.py"
    )
