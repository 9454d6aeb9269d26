"""Unified diffs of two source texts, in the form that `patch -p1` and `git apply` read.

Lines end at LF alone, as for those tools: a carriage return, a form feed or U+2028 is part of its line. A missing final
newline is marked, names that hold blanks end with a tab, and names with quotes or control characters are quoted.
Source: GNU diffutils manual, "Unified Format"; git-diff documentation, "Generating patch text with -p".
"""

from __future__ import annotations

import difflib

__all__ = ["changed_lines", "unified_diff"]


def changed_lines(old: str, new: str) -> int:
    """Lines removed plus lines added."""
    before, after = _diff_lines(old), _diff_lines(new)
    low = 0
    while low < min(len(before), len(after)) and before[low] == after[low]:
        low += 1
    high = 0
    while high < min(len(before), len(after)) - low and before[-1 - high] == after[-1 - high]:
        high += 1
    matcher = difflib.SequenceMatcher(None, before[low : len(before) - high], after[low : len(after) - high], False)
    return sum((b - a) + (d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")


def unified_diff(path: str, old: str, new: str) -> str:
    """A diff with `a/` and `b/` headers for `patch -p1` and `git apply`; empty when the texts are equal.

    path: relative, with slashes. A carriage return is part of its line, as for git; a missing final newline is marked.
    """
    if old == new:
        return ""
    lines = list(difflib.unified_diff(_diff_lines(old), _diff_lines(new), lineterm="\n"))[2:]
    body = "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
    return f"--- {_diff_name('a/', path)}\n+++ {_diff_name('b/', path)}\n{body}"


def _diff_lines(text: str) -> list[str]:
    """Split at LF alone (as git and patch do), keeping it."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _diff_name(prefix: str, path: str) -> str:
    name = prefix + path.lstrip("/")
    if any(c in name for c in '"\\\n\t'):
        escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped}"'
    return name + "\t" if " " in name else name  # a tab ends a name that holds blanks
