"""Waiting in tests. A deadline ends a test that hangs; it never measures how fast the machine is."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 60.0
"""Every wait in a test ends after this time. Long enough for a machine that is busy with other programs."""
POLL_S = 0.01

T = TypeVar("T")


async def until(condition: Callable[[], T | Awaitable[T]], deadline_s: float = DEADLINE_S) -> T:
    """Return what `condition()` gives as soon as that is true; it may be a coroutine function.

    Works in real and in virtual time. Raises TimeoutError after `deadline_s`.
    """
    async with asyncio.timeout(deadline_s):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(POLL_S)


def block_until(condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """As `until`, for tests without an event loop. Raises TimeoutError after `deadline_s`."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end_s:
            raise TimeoutError(f"not true after {deadline_s:g} s: {inspect.getsource(condition).strip()}")
        time.sleep(POLL_S)
    return value
