"""One virtual environment for each tool that `run.py` compares with.

    python benchmark/peers/setup.py [--into benchmark/peers/.venvs] [--peer NAME]...

They are made with the interpreter that runs this script, so that all tools are measured on one Python. Each gets its
own, with the versions of `requirements/NAME.txt`: two of these tools patch asyncio or install pytest plugins, and none
should meet another. simloom and simloop need Python 3.12; below that they are left out, and this is said.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["HERE", "PEERS", "VENVS", "interpreter", "main"]

HERE = Path(__file__).resolve().parent
VENVS = HERE / ".venvs"
PEERS = {"frontrun": (3, 10), "detangle": (3, 10), "simloom": (3, 12), "simloop": (3, 12)}  # name -> oldest Python


def interpreter(directory: Path, peer: str) -> Path:
    """The Python of that peer's environment."""
    scripts = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    return directory / peer / scripts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Makes the virtual environments that run.py needs.")
    parser.add_argument("--into", type=Path, default=VENVS, help="where they are made")
    parser.add_argument("--peer", action="append", choices=list(PEERS), help="only this one; may be repeated")
    options = parser.parse_args(arguments)
    failed = [peer for peer in options.peer or PEERS if not _make(options.into, peer)]
    return 1 if failed else 0


def _make(directory: Path, peer: str) -> bool:
    if sys.version_info < PEERS[peer]:
        needed = ".".join(map(str, PEERS[peer]))
        print(f"{peer}: left out, it needs Python {needed} and this is {sys.version.split()[0]}")
        return True
    venv.create(directory / peer, with_pip=True)
    wanted = HERE / "requirements" / f"{peer}.txt"
    pip = [str(interpreter(directory, peer)), "-m", "pip", "install", "--quiet", "--requirement", str(wanted)]
    done = subprocess.run(pip, stdin=subprocess.DEVNULL)
    print(f"{peer}: {'installed ' + wanted.read_text().strip() if done.returncode == 0 else 'pip failed'}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
