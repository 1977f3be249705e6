"""What one client's misbehaviour costs the others: the same chorus with and without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .card import Trial
from .chorus import chorus
from .gateways import Served

T = TypeVar("T")

OTHERS = 100


async def disturbed(
    trial: Trial, served: Served, seconds: float, disturb: Callable[[], Awaitable[T]], ratio: float
) -> T:
    """Judge a chorus's gap p99 while `disturb` runs against that without; returns what `disturb` does."""
    others = trial.size(OTHERS, least=5)
    await chorus(served.port, max(1, others // 10), 2)
    alone = await chorus(served.port, others, seconds)
    disturbing = asyncio.ensure_future(disturb())
    beside = await chorus(served.port, others, seconds)
    found = await disturbing
    trial.note("others", others)
    trial.note("gap p99 alone ms", alone.gap_p99_ms)
    trial.most("gap p99 ratio", beside.gap_p99_ms / alone.gap_p99_ms, ratio, timed=True)
    trial.most("underruns of the others", beside.underruns(), 0, timed=True)
    trial.equal("mismatches", len(beside.mismatches), 0)
    trial.equal("unfinished", beside.unfinished, 0)
    return found
