"""Event-loop lag, on a loop whose time moves only when it is told to."""

from __future__ import annotations

import asyncio

from fakes.virtual_time import VirtualTimeLoop, run
from voxgate.gateway.loop_lag import watch_lag


def test_reports_how_late_timers_run() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        seen: list[float] = []
        watching = loop.create_task(watch_lag(seen.append, 0.25))
        await asyncio.sleep(0.6)
        # Somebody keeps the loop busy for 100 ms, past the third timer.
        loop._virtual.now_s += 0.25
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        watching.cancel()
        assert [round(lag_s, 3) for lag_s in seen] == [0.0, 0.0, 0.1]

    run(scene())
