from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..chorus import UNLIMITED
from ..disturbance import disturbed
from ..gateways import tone_gateway
from ..wire import upgrade

SECONDS = 10.0
LIMIT_S = 5.5


@row(
    "A1",
    "1,000 half handshakes at 1 byte/s",
    "all closed ≤ 5.5 s, the others' gap p99 unchanged (≤ 1.1 ×)",
    nightly_s=40,
    timed=True,
)
async def half_handshakes(trial: Trial) -> None:
    count = trial.size(1000)
    async with tone_gateway(slots=200, **UNLIMITED) as served:
        before = served.descriptors
        held_s = await disturbed(trial, served, SECONDS, lambda: _dribble(served.port, count), 1.1)
        trial.note("half handshakes", count)
        trial.equal("never closed", sum(seconds is None for seconds in held_s), 0)
        trial.most("closed after s, max", max(seconds for seconds in held_s if seconds is not None), LIMIT_S)
        trial.equal("descriptors left", served.descriptors - before, 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _dribble(port: int, count: int) -> list[float | None]:
    """How long each connection was kept; None for one that was not closed."""
    return list(await asyncio.gather(*(_one(port) for _ in range(count))))


async def _one(port: int) -> float | None:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = loop.time()
    try:
        for byte in upgrade()[: int(SECONDS)]:
            writer.write(bytes((byte,)))
            try:
                async with asyncio.timeout(1):
                    await reader.read()
                return loop.time() - began_s
            except TimeoutError:
                continue
            except OSError:
                return loop.time() - began_s
        return None
    finally:
        writer.transport.abort()
