"""The stock event loop, reused, as the unit of speed: it explores nothing, each execution is the same."""

from __future__ import annotations

import asyncio
import platform

from harness import Subject, main

_loop = asyncio.new_event_loop()


class Stock:
    version = platform.python_version()
    strategies: dict[str, bool] = {}

    def find(self, subject: Subject, strategy: str, seed: int) -> None:
        return None

    def exhaust(self, subject: Subject) -> None:
        return None

    def default(self, subject: Subject) -> None:
        return None

    def stopped(self, subject: Subject) -> None:
        return None

    def explore(self, subject: Subject) -> None:
        for _ in range(100):
            _loop.run_until_complete(subject.main())


main(Stock())
