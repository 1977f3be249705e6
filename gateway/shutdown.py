"""What every level of the gateway needs to shut down: the final grace period, and waiting for one of several events.

Active utterances finish within `Settings.shutdown_grace_s`. After that deadline sockets, speeches and the engine have
`FINAL_GRACE_S` each to close; what is left then is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

FINAL_GRACE_S = 2.0
"""Seconds for sockets, speeches and the engine to close once the shutdown deadline has passed."""
PROCESS_GRACE_S = FINAL_GRACE_S + 1.0
"""Seconds for a worker process to exit after that deadline: its own final grace period, and its exit."""


async def run_until_first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Runs `coroutines` concurrently until the first one ends, then cancels the others.

    Raises the exception of the one that ended. Cancelling it cancels all of them.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()
