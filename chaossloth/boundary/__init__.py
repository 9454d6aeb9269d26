"""Telemetry of natural runs; where the timing-boundary estimators live."""

from chaossloth.boundary.telemetry import Telemetry, table

__all__ = ["Telemetry", "table"]
