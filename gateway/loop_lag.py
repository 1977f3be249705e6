"""How late the event loop runs: everything a gateway promises is late by as much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL_S = 0.25


async def watch_lag(report: Callable[[float], None], interval_s: float = INTERVAL_S) -> None:
    """Tell `report` every `interval_s` seconds how late a timer ran, in seconds; never returns."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        report(max(0.0, loop.time() - due_s))
