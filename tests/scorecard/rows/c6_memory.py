from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..chorus import UNLIMITED, chorus, text_of
from ..gateways import tone_gateway
from ..oracle import all_ended
from ..wire import clients

SPEAKING_S = 8.0


@row("C6", "memory", "idle connection ≤ 48 KiB, speaking ≤ 384 KiB", nightly_s=30)
async def memory(trial: Trial) -> None:
    idle, speaking = trial.size(900, least=100), trial.size(400, least=40)
    async with tone_gateway(slots=speaking, sockets=idle + 100, **UNLIMITED) as served:
        await chorus(served.port, 50, 2, codec="opus")  # what is loaded and allocated once
        before_bytes = served.memory_bytes
        listeners = await clients(served.port, idle)
        await asyncio.sleep(1)
        idle_bytes = served.memory_bytes
        trial.note("idle connections", idle)
        trial.most("KiB idle", (idle_bytes - before_bytes) / idle / 1024, 48)
        heard = [
            client.say(text_of(SPEAKING_S, number % 8), codec="opus")
            for number, client in enumerate(listeners[:speaking])
        ]
        await asyncio.sleep(SPEAKING_S / 2)
        trial.note("speaking", sum(one.outcome == "open" for one in heard))
        trial.most("KiB speaking", (served.memory_bytes - idle_bytes) / speaking / 1024, 384)
        await all_ended(heard, 60)
        trial.equal("mismatches", sum(bool(one.mismatch) for one in heard), 0)
        for client in listeners:
            client.abort()
