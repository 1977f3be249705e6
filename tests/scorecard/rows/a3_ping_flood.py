from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..gateways import tone_gateway
from ..wire import PING, clients, connect, frame

CONNECTIONS = 20
PINGS = frame(PING, bytes(125)) * 500


@row(
    "A3",
    "ping flood without reading, 20 connections",
    "memory + ≤ 10 MiB; an utterance meanwhile unharmed",
    light_s=7,
    nightly_s=20,
)
async def ping_flood(trial: Trial) -> None:
    seconds = trial.size(12, light=3)
    async with tone_gateway() as served:
        speaker = await connect(served.port)
        heard = speaker.say("Somebody speaks while all of that goes on around him, and is heard.")
        flooding = await clients(served.port, CONNECTIONS)
        await asyncio.sleep(0.5)
        before_bytes = peak_bytes = served.memory_bytes
        loop = asyncio.get_running_loop()
        end_s, sent, cut = loop.time() + seconds, 0, 0
        while loop.time() < end_s:
            for number, client in enumerate(flooding):
                if client.closed.done() or client.transport.is_closing():
                    cut += 1
                    flooding[number] = await connect(served.port)
                    continue
                client.transport.pause_reading()
                if client.transport.get_write_buffer_size() < 1 << 20:
                    client.transport.write(PINGS)
                    sent += 500
            await asyncio.sleep(0)
            peak_bytes = max(peak_bytes, served.memory_bytes)
        await heard.ended(30)
        trial.note("pings", sent)
        trial.note("connections cut", cut)
        trial.most("MiB more", (peak_bytes - before_bytes) / 2**20, 10)
        trial.equal("utterance", heard.mismatch or heard.outcome, "done")
        trial.equal("complaints", len(served.complaints), 0)
        for client in flooding:
            client.abort()
