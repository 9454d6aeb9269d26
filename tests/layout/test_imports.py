"""Imports point downwards, packages only re-export, and what must stay cheap to import stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import chaossloth

PACKAGE = Path(chaossloth.__file__).parent
# Higher imports lower or equal; a name is the longest prefix that matches.
LEVELS = {
    "chaossloth.__main__": 9,
    "chaossloth.cli": 8,
    "chaossloth.pipeline": 7,
    "chaossloth.report": 6,
    "chaossloth.worker": 6,
    "chaossloth.trials": 5,
    "chaossloth.session": 5,
    "chaossloth.prove": 4,
    "chaossloth.diagnose.pair": 4,
    "chaossloth.diagnose.landing": 4,
    "chaossloth.force": 4,
    "chaossloth.natural": 3,
    "chaossloth.explore": 3,
    "chaossloth.repair": 3,
    "chaossloth.diagnose": 2,
    "chaossloth.liveness": 2,
    "chaossloth.starvation": 2,
    "chaossloth.causality": 2,
    "chaossloth.boundary": 2,
    "chaossloth.loop": 2,
    "chaossloth.subject": 2,
    "chaossloth.fingerprint": 1,
    "chaossloth.config": 1,
    "chaossloth.demo": 1,
    "chaossloth.evidence": 1,
    "chaossloth.errors": 0,
    "chaossloth.plural": 0,
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def level(module: str) -> int:
    known = [name for name in LEVELS if module == name or module.startswith(f"{name}.")]
    assert known, f"{module} has no place in the layout"
    return LEVELS[max(known, key=len)]


def imported(path: Path) -> set[str]:
    """Modules of the package that the file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("chaossloth"):
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            files = {PACKAGE.parent / Path(*name.split(".")).with_suffix(".py") for name in submodules}
            found |= {name_of(file) for file in files if file.exists()} or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("chaossloth")}
    return found - {"chaossloth"}


@pytest.mark.parametrize("path", [p for p in MODULES if p != PACKAGE / "__init__.py"], ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    own = level(name_of(path))
    upwards = {module for module in imported(path) if level(module) > own}
    assert not upwards, f"{name_of(path)} imports from above: {sorted(upwards)}"


@pytest.mark.parametrize("path", [p for p in MODULES if p.name == "__init__.py"], ids=name_of)
def test_packages_only_re_export(path: Path) -> None:
    allowed = (ast.Import, ast.ImportFrom)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        exports = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        registry = isinstance(node, (ast.AnnAssign, ast.Assign)) and path.parent.name == "operators"
        assert isinstance(node, allowed) or docstring or exports or registry, ast.unparse(node)


@pytest.mark.parametrize("module", ["chaossloth.worker", "chaossloth.cli"])
def test_heavy_libraries_are_not_imported_at_once(module: str) -> None:
    heavy = "{'numpy', 'sklearn', 'scipy', 'networkx', 'pydantic', 'rich', 'ollama', 'torch', 'hypothesis'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
