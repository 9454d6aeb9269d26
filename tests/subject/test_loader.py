"""The subject's own modules: fresh for each load, from files or from changed text, imported as a script would."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaossloth.errors import UsageError
from chaossloth.subject.context import import_context
from chaossloth.subject.loader import Loader


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    saved = (list(sys.path), list(sys.meta_path), list(sys.argv), set(sys.modules))
    yield
    sys.path[:], sys.meta_path[:], sys.argv[:] = saved[0], saved[1], saved[2]
    for name in set(sys.modules) - saved[3]:
        if getattr(sys.modules[name], "__file__", None) and "pytest-" in str(sys.modules[name].__file__):
            del sys.modules[name]


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_neighbours_guard_and_name(tmp_path: Path) -> None:
    text = "import near\nvalue = near.x\nran = False\nif __name__ == '__main__':\n    ran = True\n"
    tree(tmp_path, {"far_main.py": text, "near.py": "x = 5\n"})
    module = Loader(import_context(tmp_path / "far_main.py")).load(instrumented=False)
    assert (module.value, module.ran, module.__name__, module.__file__) == (
        5,
        False,
        "far_main",
        str(tmp_path / "far_main.py"),
    )
    assert sys.argv == [str(tmp_path / "far_main.py")]


def test_relative_imports_src_layout_and_data(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "",
        "src/appx/__init__.py": "from . import core\n",
        "src/appx/core.py": "STATE = []\n",
        "src/appx/deep/__init__.py": "",
        "src/appx/deep/mod.py": "from ..core import STATE\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass P:\n    x: 'int' = 1\nSTATE.append(1)\n",
    }
    loader = Loader(import_context(tree(tmp_path, files) / "src/appx/deep/mod.py"))
    module = loader.load(instrumented=False)
    assert module.__name__ == "appx.deep.mod" and module.STATE == [1] and module.P() == module.P(1)
    again = loader.reload()
    # The package's other modules are new as well: state does not survive.
    assert again is not module and again.STATE == [1] and again.STATE is not module.STATE


def test_a_script_named_like_a_library_module(tmp_path: Path) -> None:
    tree(tmp_path, {"random.py": "import random as other\nname = other.__name__\nx = other.uniform(1, 1)\n"})
    module = Loader(import_context(tmp_path / "random.py")).load(instrumented=False)
    assert module.x == 1.0 and module.__name__ == "subject_random"


def test_changed_text_runs_and_is_shown_in_tracebacks(tmp_path: Path) -> None:
    path = tree(tmp_path, {"shown.py": "def f():\n    return 1\n"}) / "shown.py"
    loader = Loader(import_context(path))
    assert loader.load(instrumented=False).f() == 1
    patched = loader.load(instrumented=False, overrides={str(path): "def f():\n    raise KeyError('patched')\n"})
    with pytest.raises(KeyError) as caught:
        patched.f()
    assert "raise KeyError('patched')" in "".join(traceback.format_exception(caught.value))
    back = loader.load(instrumented=False, overrides={})
    assert back.f() == 1
    assert "return 1" in "".join(linecache.getlines(str(path)))


def test_only_own_modules_are_dropped(tmp_path: Path) -> None:
    files = {
        "own/pyproject.toml": "",
        "own/start.py": "import foreign_lib, mate\n",
        "own/mate.py": "",
        "own/.venv/pyvenv.cfg": "",
        "own/.venv/foreign_lib.py": "",
    }
    root = tree(tmp_path, files) / "own"
    sys.path.append(str(root / ".venv"))
    loader = Loader(import_context(root / "start.py"))
    first = loader.load(instrumented=False)
    second = loader.reload()
    assert second.foreign_lib is first.foreign_lib
    assert second.mate is not first.mate


def test_included_packages_are_kept_per_variant(tmp_path: Path) -> None:
    files = {
        "own/pyproject.toml": "",
        "own/begin.py": "import bundled.inner\n",
        "lib/bundled/__init__.py": "",
        "lib/bundled/inner.py": "x = 1\n",
    }
    tree(tmp_path, files)
    sys.path.append(str(tmp_path / "lib"))
    inner = str(tmp_path / "lib/bundled/inner.py")
    loader = Loader(import_context(tmp_path / "own/begin.py"), include=["bundled"])
    plain = loader.load(instrumented=False).bundled.inner
    assert loader.reload().bundled.inner is plain
    changed = loader.load(instrumented=False, overrides={inner: "x = 2\n"}).bundled.inner
    assert (plain.x, changed.x) == (1, 2)
    assert loader.load(instrumented=False, overrides={}).bundled.inner is plain
    assert loader.is_subject(inner) and not loader.is_subject(str(tmp_path / "lib/bundled2.py"))


def test_instrumented_variant_records_and_plain_one_does_not(tmp_path: Path) -> None:
    path = (
        tree(tmp_path, {"both.py": "class A:\n    def set(self):\n        self.x = 1\n        return self.x\n"})
        / "both.py"
    )
    loader = Loader(import_context(path))
    assert loader.load(instrumented=True).A().set() == 1
    assert "__chaossloth__" in vars(loader.module)
    assert loader.load(instrumented=False).A().set() == 1
    assert "__chaossloth__" not in vars(loader.module)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module_x\n", "cannot be imported: No module named 'no_such_module_x'"),
        ("x = 1\n1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "ends the process while it is imported"),
        ("class E(BaseException): ...\nraise E('odd')\n", "cannot be imported: E: odd"),
    ],
)
def test_failing_imports_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tree(tmp_path, {"broken_import.py": text}) / "broken_import.py"
    with pytest.raises(UsageError) as caught:
        Loader(import_context(path)).load(instrumented=False)
    assert message in str(caught.value)
    assert f"({path}:{text.count(chr(10))})" in str(caught.value)


def test_a_neighbour_that_does_not_parse(tmp_path: Path) -> None:
    tree(tmp_path, {"uses_bad.py": "import bad_syntax_x\n", "bad_syntax_x.py": "x = 1\ndef f(:\n"})
    with pytest.raises(UsageError, match=r"bad_syntax_x\.py:2 does not parse"):
        Loader(import_context(tmp_path / "uses_bad.py")).load(instrumented=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [("asyncio", "standard library"), ("no_such_package_x", "no package of that name")],
)
def test_include_refusals(tmp_path: Path, name: str, message: str) -> None:
    path = tree(tmp_path, {"any_file.py": ""}) / "any_file.py"
    with pytest.raises(UsageError, match=message):
        Loader(import_context(path), include=[name])
