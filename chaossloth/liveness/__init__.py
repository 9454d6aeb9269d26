"""Deadlock and livelock: who waits for whom when nothing can run, and which lock orders could get there."""

from chaossloth.liveness.blocked import describe_blocked_loop
from chaossloth.liveness.deadlock import describe_deadlock
from chaossloth.liveness.livelock import detect_livelock
from chaossloth.liveness.lock_order import distinct_cycles, lock_order_cycles
from chaossloth.liveness.waiting import suspended_at

__all__ = [
    "describe_blocked_loop",
    "describe_deadlock",
    "detect_livelock",
    "distinct_cycles",
    "lock_order_cycles",
    "suspended_at",
    "suspended_in",
]
