"""The nine phases in order, from the command's side."""

from chaossloth.pipeline.investigation import investigate

__all__ = ["investigate"]
