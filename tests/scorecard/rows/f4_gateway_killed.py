from __future__ import annotations

import asyncio
import signal
import time

import psutil

from ..card import Trial, row
from ..gateways import voice_gateway
from ..wire import connect


@row("F4", "gateway SIGKILLed in mid-speech", "engine processes gone ≤ 10 s", nightly_s=20, voice=True)
async def gateway_killed(trial: Trial) -> None:
    async with voice_gateway() as served:
        client = await connect(served.port)
        client.say("This is going to be cut off in the midst of a sentence that is long enough for it.")
        await asyncio.sleep(1)
        family = served.family
        served.signal(signal.SIGKILL)
        began_s = time.monotonic()
        await served.gone()
        while any(map(_runs, family)) and time.monotonic() - began_s < 30:
            await asyncio.sleep(0.05)
        trial.note("processes", len(family))
        trial.equal("left", sum(map(_runs, family)), 0)
        trial.most("gone after s", time.monotonic() - began_s, 10)


def _runs(process: psutil.Process) -> bool:
    """A zombie has ended: a container's first process may not collect what it inherits."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
