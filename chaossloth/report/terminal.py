"""The report on a terminal: header, nine phases, diff, outcome, verdict with its bounds, reproduce line last.

`phase_lines` is what the pipeline passes to its observer while it works; `render` prints what was not printed yet. Both
go through the same functions of `phases`, so that a report made later from JSON reads like the one seen live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from chaossloth.evidence import Investigation
from chaossloth.plural import count
from chaossloth.report import phases
from chaossloth.report.progress import PHASES, print_phase
from chaossloth.report.text import escape, terminal_width, wrap
from chaossloth.report.trace import Sources
from chaossloth.report.words import bounds_words, executed_words, shown_path, verdict_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["outcome_words", "phase_lines", "render"]

_LABEL = 12  # " reproduce  "


def phase_lines(
    investigation: Investigation,
    *,
    verbosity: int = 0,
    width: int | None = None,
    sources: Mapping[str, str] | None = None,
    written: Sequence[str] = (),
) -> dict[int, list[str]]:
    """Lines of each phase, 0 (the header) to 9, escaped, without number and name; see `text.layout`.

    width: cells of the terminal (default: that of stdout, 100 for a pipe). sources: text of each file as analysed.
    written: what the face wrote, for phase 9, e.g. "JSON to out.json".
    """
    width = width if width is not None else terminal_width()
    lines = phases.bodies(investigation, Sources(sources), width, verbosity)
    lines[9] = _report(investigation, written)
    return {number: [escape(line) for line in body] for number, body in lines.items()}


def _report(inv: Investigation, written: Sequence[str]) -> list[str]:
    repairs = [finding.repair for finding in inv.findings if finding.repair is not None]
    parts = []
    if any(repair.applied for repair in repairs):
        parts.append(f"patch written to {shown_path(inv.target.path)}")
    elif any(repair.verified and repair.installed for repair in repairs):
        parts.append("source unchanged, the patch is for installed code: shown, never applied")
    elif any(repair.verified for repair in repairs):
        parts.append("source unchanged, --apply writes the patch")
    else:
        parts.append("source unchanged")
    parts += [f"guard {repair.guard}" for repair in repairs if repair.guard and "\n" not in repair.guard]
    return [" · ".join([*parts, *written])]


def render(
    investigation: Investigation,
    console: Console,
    verbosity: int = 0,
    *,
    already: Collection[int] = (),
    sources: Mapping[str, str] | None = None,
    written: Sequence[str] = (),
) -> None:
    """Print the report; `already` names phases that an observer has printed.

    Verbosity -1: diff, outcome, verdict and reproduce.
    """
    # A file that was patched is no longer what was analysed: better no source line than a wrong one.
    applied = any(finding.repair is not None and finding.repair.applied for finding in investigation.findings)
    texts = Sources(sources, disk=not applied)
    if verbosity >= 0:
        lines = phase_lines(investigation, verbosity=verbosity, width=console.width, sources=sources, written=written)
        for number, name in PHASES.items():
            if number not in already and number in phases.attempted(investigation):
                print_phase(_printer(console), number, name, lines[number], console.width)
        _blank(console)
    _diffs(investigation, console)
    _conclusion(investigation, console, verbosity, texts)
    if verbosity > 0:
        _details(investigation, console)
    if investigation.reproduce:
        _blank(console)
        _verbatim(console, (f" {'reproduce':<10} ", "bold"), (investigation.reproduce, "none"))


def _printer(console: Console) -> Callable[[Text], None]:
    return lambda text: console.print(text, soft_wrap=True)


def _conclusion(inv: Investigation, console: Console, verbosity: int, sources: Sources) -> None:
    """Outcome, and the verdict never without its bounds."""
    _labelled(console, "outcome", [outcome_words(inv, sources)])
    _labelled(console, "verdict", _verdicts(inv))
    if verbosity >= 0:
        _labelled(console, "note", list(inv.notes))


def _verdicts(inv: Investigation) -> list[str]:
    """What holds now: after a verified repair the patched program's verdict, and the search of the original second."""
    lines = [
        line
        for finding in inv.findings
        if finding.repair is not None and finding.repair.verified and finding.repair.verdict is not None
        for line in (
            f"patched: {verdict_words(finding.repair.verdict)}",
            f"bounds: {bounds_words(finding.repair.verdict.bounds)}",
        )
    ]
    if lines and inv.outcome == "repaired":
        return [*lines, f"original: failed after {executed_words(inv.verdict)}"]
    return [verdict_words(inv.verdict), f"bounds: {bounds_words(inv.verdict.bounds)}"]


def outcome_words(inv: Investigation, sources: Sources | None = None) -> str:
    """The outcome's word and one sentence that claims what was shown and no more."""
    texts = sources if sources is not None else Sources()
    what = "; ".join(phases.finding_words(finding, texts) for finding in inv.findings[:1]) or inv.cause
    if len(inv.findings) > 1:
        what += f" · and {count(len(inv.findings) - 1, 'other finding')}, above"
    reasons = "; ".join(f.no_repair_reason for f in inv.findings[:1] if f.no_repair_reason)
    judged = any(f.repair is not None and f.repair.candidates.generated for f in inv.findings)
    refused = "every candidate was refused" if judged else "no candidate was made"
    words = {
        "clean": f"clean: {inv.cause}" if phases.is_replay(inv) else "clean: nothing failed",
        "found": f"found: {what}",
        "repaired": f"repaired: {what} · {_verified(inv)}",
        "no-repair": f"no repair: {what} · {reasons or refused}",
        "not-a-race": f"not a race: {inv.cause}",
        "inconclusive": f"inconclusive: {inv.cause} · nothing is claimed",
        "error": f"error: {inv.cause}",
    }
    text = words[inv.outcome]
    return f"interrupted, this is what is known so far · {text}" if inv.interrupted else text


def _verified(inv: Investigation) -> str:
    verified = [f.repair for f in inv.findings if f.repair is not None and f.repair.verified]
    patch = "patch" if len(verified) == 1 else f"{len(verified)} patches"
    if any(repair.installed for repair in verified):
        return f"{patch} verified, for installed code: shown, never applied"
    written = all(repair.applied for repair in verified)
    return f"{patch} verified, {'written' if written else 'not written (--apply writes it)'}"


def _diffs(inv: Investigation, console: Console) -> None:
    diffs = dict.fromkeys(f.repair.diff for f in inv.findings if f.repair and f.repair.verified and f.repair.diff)
    for diff in diffs:
        for line in diff.removesuffix("\n").split("\n"):  # only LF ends a line of a diff
            _verbatim(console, (line.removesuffix("\r"), _diff_style(line)))
        _blank(console)


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "none")


def _details(inv: Investigation, console: Console) -> None:
    timings = " · ".join(f"{name} {seconds:.2f} s" for name, seconds in inv.timings_s.items())
    _labelled(console, "timings", [timings] if timings else [])
    made_with = inv.fingerprint
    commit = f"commit {made_with.commit}" if made_with.commit else "no commit"
    words = f"{made_with.python} · {made_with.platform} · {commit} · source sha256 {made_with.source_sha256}"
    _labelled(console, "made with", [words])
    tokens = [f"{finding.label} {finding.token}" for finding in inv.findings if finding.token]
    _labelled(console, "tokens", tokens)


def _labelled(console: Console, label: str, lines: Sequence[str]) -> None:
    """` label      text`, wrapped under the text; each further line starts there too."""
    from rich.text import Text

    first = True
    for line in lines:
        for part in wrap(escape(line), max(20, console.width - _LABEL)):
            text = Text(f" {label if first else '':<10} {part}")
            text.stylize("bold", 0, _LABEL)
            console.print(text, soft_wrap=True)
            first = False


def _verbatim(console: Console, *parts: tuple[str, str]) -> None:
    """One line of (text, style) parts that is meant to be copied: never wrapped or cut, its tabs kept.

    Segments, because Rich expands the tabs of a `Text`, and a patch with other white space does not apply.
    """
    from rich.segment import Segment, Segments

    line = [Segment(escape(text, keep="\t"), console.get_style(style)) for text, style in parts]
    console.print(Segments([*line, Segment.line()]), soft_wrap=True, end="")


def _blank(console: Console) -> None:
    console.print("")
