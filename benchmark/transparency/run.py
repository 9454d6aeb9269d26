"""The test-suites of published packages, plain and instrumented: is every test's result the same?

    python benchmark/transparency/run.py                       # all packages, takes minutes; needs a package index
    python benchmark/transparency/run.py async-lru janus       # some of them

Each package's source distribution is downloaded with pip into a temporary directory and its own tests are run there,
in a temporary environment, three times: plain, plain again (a test that differs between these two says nothing, and is
counted as unstable), and with every module of the package instrumented and the recorder on (`plugin.py`). Compared per
test: the outcome of each phase, and for failures the message and the line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Package:
    """name: on the index; module: what is imported (and instrumented); where: its directory in the distribution.

    tests: what pytest runs; files: their names; needs: what they import besides.
    excluded: modules that are not instrumented.
    """

    name: str
    version: str
    module: str
    tests: str
    where: str = "."
    needs: tuple[str, ...] = ()
    files: str = "test_*.py"
    excluded: str = ""


PACKAGES = (
    Package("async-lru", "2.4.0", "async_lru", "tests", needs=("typing_extensions",)),
    Package("async-timeout", "5.0.1", "async_timeout", "tests"),
    Package("janus", "2.0.0", "janus", "tests", needs=("pytest-benchmark", "pytest-codspeed")),
    Package("aiosqlite", "0.22.1", "aiosqlite", "aiosqlite/tests/smoke.py", excluded="aiosqlite.tests"),
    Package(
        "aioitertools", "0.13.0", "aioitertools", "aioitertools/tests", files="*.py", excluded="aioitertools.tests"
    ),
    Package("cachetools", "8.0.2", "cachetools", "tests", where="src"),
    Package("more-itertools", "11.2.1", "more_itertools", "tests"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="test-suites of published packages, plain and instrumented")
    parser.add_argument("packages", nargs="*", help="names; all by default")
    parser.add_argument("--all-tests", action="store_true", help="print every test, not only those that differ")
    options = parser.parse_args()
    chosen = [p for p in PACKAGES if not options.packages or p.name in options.packages]
    if unknown := set(options.packages) - {p.name for p in PACKAGES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(p.name for p in PACKAGES)}")
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        python = _environment(base, sorted({need for p in chosen for need in p.needs}))
        print(f"Python {sys.version.split()[0]}")
        print(f"{'package':24} {'tests':>6} {'identical':>9} {'different':>9} {'unstable':>8} {'functions left':>14}")
        different = sum([_compare(p, python, base, options.all_tests) for p in chosen])
    sys.exit(1 if different else 0)


def _environment(base: Path, needs: list[str]) -> Path:
    venv.create(base / "env", with_pip=True)
    python = base / "env" / "bin" / "python"
    _quietly(python, "-m", "pip", "install", "-q", "pytest", "pytest-asyncio", *needs)
    return python


def _quietly(*command: Any) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


def _compare(package: Package, python: Path, base: Path, every: bool) -> int:
    source = _unpacked(package, python, base)
    first, again, hooked = (_results(package, python, source, base, mode) for mode in ("plain", "plain", "hooked"))
    counts = {"identical": 0, "different": 0, "unstable": 0}
    lines = []
    for test in sorted(first["tests"].keys() | hooked["tests"].keys()):
        plain, other = first["tests"].get(test), hooked["tests"].get(test)
        word = "identical" if plain == other else "different"
        if plain != again["tests"].get(test):
            word = "unstable"
        counts[word] += 1
        if every or word != "identical":
            lines.append(f"  {word:9} {test}" + ("" if word == "identical" else f"\n    {plain}\n    {other}"))
    total, left = sum(counts.values()), len(hooked["skipped"])
    figures = f"{total:6} {counts['identical']:9} {counts['different']:9} {counts['unstable']:8} {left:14}"
    print(f"{package.name + ' ' + package.version:24} {figures}", *lines, *hooked["skipped"], sep="\n", flush=True)
    if not total:
        sys.exit(f"{package.name}: no test was run")
    return counts["different"]


def _unpacked(package: Package, python: Path, base: Path) -> Path:
    download = base / package.module
    what = f"{package.name}=={package.version}"
    _quietly(python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", download, what)
    (archive,) = download.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(download, filter="data")
    (source,) = (path for path in download.iterdir() if path.is_dir())
    return source


def _results(package: Package, python: Path, source: Path, base: Path, mode: str) -> Any:
    """{"tests": {node id: [[phase, outcome, message, line], ...]}, "skipped": functions left as they were}."""
    out = base / "results.json"
    out.unlink(missing_ok=True)
    words = [python, "-m", "pytest", "-q", "-p", "plugin", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    words += ["-o", "asyncio_mode=auto", "-o", f"python_files={package.files}", "-W", "ignore", package.tests]
    paths = os.pathsep.join(map(str, (HERE, ROOT, source / package.where, source)))
    asked = {"TRANSPARENCY_MODULE": package.module, "TRANSPARENCY_EXCLUDED": package.excluded}
    asked |= {"TRANSPARENCY_MODE": mode, "TRANSPARENCY_OUT": str(out), "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*map(str, words)], cwd=source, env=os.environ | asked, capture_output=True, text=True, timeout=1800
    )
    if not out.exists():
        sys.exit(f"{package.name} ({mode}): pytest wrote nothing\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return json.loads(out.read_text())


if __name__ == "__main__":
    main()
