"""The telemetry table of natural runs: a row per run, a column per await site, and whether the run failed.

Only what could be injected as a delay becomes a column. Ready-queue latency and context switches are consequences of
the interleaving: as columns they would give the label away, so they are kept apart. A site that a run did not reach is
NaN there, not 0: an await that was never made did not take no time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import numpy.typing

__all__ = ["Telemetry", "table"]


@dataclass(frozen=True, slots=True)
class Telemetry:
    """columns: await sites "file:line"; rows: µs there by run and column, NaN if not reached; failed: one per run."""

    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    failed: tuple[bool, ...]

    def column(self, site: str) -> tuple[float, ...]:
        """One site over all runs, in µs. ValueError for an unknown site."""
        at = self.columns.index(site)
        return tuple(row[at] for row in self.rows)

    def varying(self) -> Telemetry:
        """Without the columns that cannot explain anything: same value, or reached at all or not, in every run."""
        kept = [i for i in range(len(self.columns)) if len({_cell(row[i]) for row in self.rows}) > 1]
        return Telemetry(
            tuple(self.columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in self.rows), self.failed
        )

    def arrays(self) -> tuple[numpy.typing.NDArray[numpy.float64], numpy.typing.NDArray[numpy.bool_]]:
        """(runs, columns) µs and (runs,) failed."""
        import numpy as np

        shape = (len(self.rows), len(self.columns))
        return np.array(self.rows, dtype=np.float64).reshape(shape), np.array(self.failed, dtype=np.bool_)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Telemetry:
        """From what `evidence.as_json` made of one; null becomes NaN again."""
        rows = tuple(tuple(math.nan if cell is None else float(cell) for cell in row) for row in value["rows"])
        return cls(tuple(value["columns"]), rows, tuple(map(bool, value["failed"])))


def table(runs: Sequence[Mapping[str, float]], failed: Sequence[bool]) -> Telemetry:
    """runs: µs by site for each run; failed: as many flags. Columns come in order of file and line.

    Raises ValueError when the lengths differ.
    """
    if len(runs) != len(failed):
        raise ValueError(f"{len(runs)} runs but {len(failed)} outcomes")
    columns = tuple(sorted({site for run in runs for site in run}, key=_place))
    rows = tuple(tuple(run.get(site, math.nan) for site in columns) for run in runs)
    return Telemetry(columns, rows, tuple(failed))


def _place(site: str) -> tuple[str, int]:
    file, _, line = site.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else value
