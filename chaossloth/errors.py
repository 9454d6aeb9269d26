"""The two families of failure that are never the subject's own.

A fault *in the subject* (an assertion, a deadlock) is data: an `Outcome`, a `Finding`. Only these are exceptions:

* `UsageError`: what the user asked for cannot be done; names the thing and the remedy; exit code 2.
* `SubjectUnusable`: the subject ended, hung or outgrew its worker process; what was learnt before is kept; exit code 3.
* `ToolError`: a fault of ChaosSloth itself; exit code 70.
"""

from __future__ import annotations

__all__ = ["ChaosSlothError", "UsageError", "SubjectUnusable", "ReplayDiverged", "ToolError"]


class ChaosSlothError(Exception):
    """Base of every exception that ChaosSloth raises on its own account."""


class UsageError(ChaosSlothError):
    """Wrong use: unknown file, class or method, bad option, subject that does not parse. One sentence and a remedy."""


class SubjectUnusable(ChaosSlothError):
    """The worker process that runs the subject is gone or was stopped at a limit.

    reason: one of "exited", "crashed", "step-never-ended", "memory", "wall-time", "closed-channel".
    detail: one sentence with place and figure, fit to be shown.
    stack:  innermost-first "file:line function" entries of the step that was running, where known.
    """

    def __init__(self, reason: str, detail: str, stack: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.stack = stack


class ReplayDiverged(ChaosSlothError):
    """A replayed schedule met another choice than the recorded one. Names the step and the likely source."""


class ToolError(ChaosSlothError):
    """A fault of ChaosSloth itself."""
