"""How a file is imported (search path, module name) and which files are the subject's own. No code is run.

The rules are those a user already relies on: a plain script finds its neighbours (`python file.py` puts its directory
first), a file of a package finds relative imports (the parent of the top package comes first), a test file finds what
pytest makes importable (rootdir, the directories of conftest.py files, the `pythonpath` setting). Directories that
are only a guess (the project's root, its `src`) come *last*, so that they add modules but never hide one.
Source: Python documentation of sys.path initialisation; pytest documentation "import mode prepend" and `pythonpath`.
"""

from __future__ import annotations

import configparser
import keyword
import os
import re
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["ImportContext", "find_root", "import_context", "own_modules"]

_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg", "pytest.ini", "tox.ini")
_FOREIGN_PARTS = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__", "build", "dist", ".git"})
_TOOL = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class ImportContext:
    """How the subject's file is imported.

    path:          the file, absolute.
    sys_path:      directories to put in front of sys.path, in this order.
    sys_path_last: directories to append to sys.path.
    module_name:   dotted name for a file of a package, else its stem; never "__main__".
    package:       dotted name of the package that holds the file, None for a plain script.
    root:          the project's root; what lies under it is the subject's own.
    is_main:       a plain script that `python file.py` would run (no package around it).
    """

    path: Path
    sys_path: tuple[str, ...]
    sys_path_last: tuple[str, ...]
    module_name: str
    package: str | None
    root: Path
    is_main: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values for the channel."""
        return {
            "path": str(self.path),
            "sys_path": list(self.sys_path),
            "sys_path_last": list(self.sys_path_last),
            "module_name": self.module_name,
            "package": self.package,
            "root": str(self.root),
            "is_main": self.is_main,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ImportContext:
        return cls(
            path=Path(value["path"]),
            sys_path=tuple(value["sys_path"]),
            sys_path_last=tuple(value["sys_path_last"]),
            module_name=value["module_name"],
            package=value["package"],
            root=Path(value["root"]),
            is_main=value["is_main"],
        )


def find_root(path: Path) -> Path:
    """The nearest directory above `path` that marks a project; else the directory that holds the top package."""
    for directory in path.parents:
        if any((directory / marker).exists() for marker in _MARKERS):
            return directory
    return _package_chain(path)[1]


def _package_chain(path: Path) -> tuple[list[str], Path]:
    """Names of the packages around a file, outermost first, and the directory that holds the outermost."""
    names: list[str] = []
    directory = path.parent
    while (directory / "__init__.py").is_file() and _is_name(directory.name) and directory.parent != directory:
        names.insert(0, directory.name)
        directory = directory.parent
    return names, directory


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def import_context(path: Path) -> ImportContext:
    """How to import `path` (an existing file)."""
    path = Path(os.path.abspath(path))
    packages, base = _package_chain(path)
    root = find_root(path)
    if packages:
        name = ".".join(packages if path.name == "__init__.py" else [*packages, path.stem])
        package = ".".join(packages)
    else:
        name, package = _script_name(path), None
    first = [str(base)]
    last = [str(path.parent)] if packages else []
    if _is_test_layout(path, root):
        first += _pytest_path(path, root)
    last += [str(root), str(root / "src")]
    if not packages and (src := _src_above(path, root)) is not None:
        first.append(str(src))
    first = _existing(first)
    return ImportContext(
        path=path,
        sys_path=tuple(first),
        sys_path_last=tuple(d for d in _existing(last) if d not in first),
        module_name=name,
        package=package,
        root=root,
        is_main=not packages,
    )


def _script_name(path: Path) -> str:
    """A module name for a file of any name. A library module of the same name stays importable."""
    name = re.sub(r"\W", "_", path.stem) or "_"
    return f"subject_{name}" if name in sys.stdlib_module_names or name in ("__main__", "chaossloth") else name


def _existing(directories: list[str]) -> list[str]:
    return [d for d in dict.fromkeys(directories) if os.path.isdir(d)]


def _src_above(path: Path, root: Path) -> Path | None:
    """`src` of a src layout when the file lies in it without `__init__.py` files (namespace packages)."""
    src = root / "src"
    return src if src in path.parents else None


def _is_test_layout(path: Path, root: Path) -> bool:
    stem = path.stem
    inside = path.relative_to(root).parts[:-1] if path.is_relative_to(root) else ()
    return stem.startswith("test_") or stem.endswith("_test") or "tests" in inside or "test" in inside


def _pytest_path(path: Path, root: Path) -> list[str]:
    found = list(_pythonpath_setting(root))
    for directory in path.parents:
        if (directory / "conftest.py").is_file():
            found.append(str(_package_chain(directory / "conftest.py")[1]))
        if directory == root:
            break
    return [*found, str(root), str(root / "src")]


def _pythonpath_setting(root: Path) -> list[str]:
    """pytest's `pythonpath`, absolute, from the first configuration file that has a pytest section."""
    raw: list[str] = []
    for name, section in (
        ("pytest.ini", "pytest"),
        ("pyproject.toml", ""),
        ("tox.ini", "pytest"),
        ("setup.cfg", "tool:pytest"),
    ):
        file = root / name
        if not file.is_file():
            continue
        value = _toml_pythonpath(file) if name == "pyproject.toml" else _ini_pythonpath(file, section)
        if value is not None:
            raw = value
            break
    return [os.path.normpath(root / entry) for entry in raw]


def _toml_pythonpath(file: Path) -> list[str] | None:
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None  # a broken pyproject.toml is reported where the tool's own settings are read
    options = table.get("tool", {}).get("pytest", {}).get("ini_options")
    if not isinstance(options, dict):
        return None
    value = options.get("pythonpath", [])
    return value.split() if isinstance(value, str) else [str(entry) for entry in value]


def _ini_pythonpath(file: Path, section: str) -> list[str] | None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(file.read_text("utf-8"))
    except (OSError, ValueError, configparser.Error):
        return None
    return parser.get(section, "pythonpath", fallback="").split() if parser.has_section(section) else None


def own_modules(root: Path) -> Callable[[str], bool]:
    """Predicate over file names: is it source of the subject's own project?

    Under `root`, but not installed packages, environments, build output, the standard library, or this tool itself.
    """
    base = os.path.realpath(root) + os.sep
    base = base if not base.endswith(os.sep * 2) else base[:-1]
    foreign = _foreign_directories()
    tool = str(_TOOL) + os.sep

    @lru_cache(maxsize=4096)
    def own(filename: str) -> bool:
        real = os.path.realpath(filename)
        if not real.startswith(base) or real.startswith(tool) or not real.endswith(".py"):
            return False
        if any(real.startswith(directory) for directory in foreign if not base.startswith(directory)):
            return False
        below = Path(real[len(base) :]).parts[:-1]
        return not any(part in _FOREIGN_PARTS for part in below) and not _in_environment(base, below)

    return own


@lru_cache(maxsize=1)
def _foreign_directories() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths}
    return tuple(sorted(os.path.realpath(d) + os.sep for d in found))


@lru_cache(maxsize=1024)
def _in_environment(base: str, below: tuple[str, ...]) -> bool:
    directory = base
    for part in below:
        directory = os.path.join(directory, part)
        if os.path.isfile(os.path.join(directory, "pyvenv.cfg")):
            return True
    return False
