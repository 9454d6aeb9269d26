"""An invoice whose test fails on every run, whatever the order of events.

Wrong:  the expectation, not the concurrency. Prices are fetched concurrently and added up in a fixed order, so every
        interleaving gives the same total: the binary floating-point number next to 0.3, which is not 0.3.
Run:    chaossloth sandbox/invoice_total.py::scenario
Rate:   300 of 300 runs fail (100 %) on the stock loop: python tests/sandbox/natural.py invoice_total 300
Prints: not a race: total is 0.30000000000000004, expected 0.3 at invoice_total.py:30: it fails in every order tried
        (43 executions), so no interleaving is to blame
"""

import asyncio
import random

PRICES = {"stamp": 0.1, "envelope": 0.2}


async def fetch_price(article: str) -> float:
    """Stands for a request to a catalogue."""
    await asyncio.sleep(random.uniform(0.0005, 0.002))
    return PRICES[article]


async def invoice_total(articles: list[str]) -> float:
    prices = await asyncio.gather(*(fetch_price(article) for article in articles))
    return sum(prices)


async def scenario() -> None:
    total = await invoice_total(["stamp", "envelope"])
    assert total == 0.3, f"total is {total!r}, expected 0.3"
