from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..chorus import UNLIMITED, chorus, text_of
from ..gateways import Served, tone_gateway
from ..wire import Client, clients

LEAD_MS, GRACE_MS = 400, 3000
WATCHED_S = 12.0
LONG_S = 60


@row(
    "C3",
    "half of the readers stall",
    "others' gap p99 ≤ 1.2 × without them; each stalled one cut within lead + 3 s; ≤ 300 KiB each",
    nightly_s=55,
    timed=True,
)
async def stalled_readers(trial: Trial) -> None:
    count = trial.size(250, least=4)
    seconds = WATCHED_S + 4
    async with tone_gateway(slots=4 * count, **UNLIMITED) as served:
        await chorus(served.port, max(1, count // 10), 2)
        alone = await chorus(served.port, count, seconds)
        stalling, others = await clients(served.port, count), await clients(served.port, count)
        before_bytes = served.memory_bytes
        watching = asyncio.create_task(_stall(served, stalling, len(others)))
        disturbed = await chorus(served.port, count, seconds, listeners=others)
        cut_ms, left, peak_bytes = await watching
        trial.note("stalled readers", count)
        trial.note("gap p99 alone ms", alone.gap_p99_ms)
        trial.most("gap p99 ratio", disturbed.gap_p99_ms / alone.gap_p99_ms, 1.2, timed=True)
        trial.equal("never cut", left, 0)
        trial.most("the last cut after ms", cut_ms, LEAD_MS + GRACE_MS, timed=True)
        # What the others take is in it too: it is an upper bound.
        trial.most("KiB each", (peak_bytes - before_bytes) / count / 1024, 300)
        trial.equal("mismatches", len(disturbed.mismatches), 0)
        trial.most("underruns of the others", disturbed.underruns(), 0, timed=True)
        trial.note("slots free again after ms", 1000 * await served.until_idle(90))
        trial.equal("complaints", len(served.complaints), 0)


async def _stall(served: Served, stalling: list[Client], others: int) -> tuple[float, int, int]:
    """All listen for a second, then read no more. Returns when the last was cut, how many never, the most memory."""
    for number, client in enumerate(stalling):
        client.say(text_of(LONG_S, number % 4))
    await asyncio.sleep(1)
    for client in stalling:
        client.transport.pause_reading()
    loop = asyncio.get_running_loop()
    began_s, left, peak_bytes = loop.time(), len(stalling), 0
    # Who does not read does not see the end of the connection either, so the gateway is asked.
    while left > 0 and loop.time() - began_s < WATCHED_S:
        await asyncio.sleep(0.1)
        peak_bytes = max(peak_bytes, served.memory_bytes)
        left = (await served.get("/v1/limits"))[1]["sockets"]["open"] - others
    cut_ms = 1000 * (loop.time() - began_s)
    for client in stalling:
        client.abort()
    return cut_ms, left, peak_bytes
