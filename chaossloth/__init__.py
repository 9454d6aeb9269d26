"""ChaosSloth finds, explains, reproduces and repairs concurrency flakiness in asyncio code, and proves the repair."""

from chaossloth.config import VERSION as __version__
from chaossloth.evidence import Investigation

__all__ = ["Investigation", "__version__"]
