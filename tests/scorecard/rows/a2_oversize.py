from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..gateways import tone_gateway
from ..wire import TEXT, Client, connect, frame

TOO_BIG = 1009
CONTINUATION = 0
MESSAGE_BYTES = 65_536
FRAGMENT_BYTES = 1000


@row(
    "A2",
    "oversize: one frame, fragments, lengths up to 2^63",
    "1009 ≤ 50 ms, memory + ≤ 1 MiB",
    light_s=4,
    nightly_s=8,
    timed=True,
)
async def oversize(trial: Trial) -> None:
    each = trial.size(50, light=5)
    fragment = b"x" * FRAGMENT_BYTES
    floods = {
        "one frame": frame(TEXT, b"x" * (MESSAGE_BYTES + 1)),
        "fragments": frame(TEXT, fragment, last=False) + frame(CONTINUATION, fragment, last=False) * 70,
        "2^63 - 1": b"\x81\xff" + (2**63 - 1).to_bytes(8, "big") + bytes(4) + b"x" * 1000,
        "2^63": b"\x81\xff" + (2**63).to_bytes(8, "big") + bytes(4) + b"x" * 1000,
        "1 GiB": b"\x81\xff" + (2**30).to_bytes(8, "big") + bytes(4) + b"x" * 1000,
    }
    async with tone_gateway() as served:
        for data in floods.values():
            await _send(served.port, data)
        before_bytes = served.memory_bytes
        slowest_ms, peak_bytes = 0.0, before_bytes
        for name, data in floods.items():
            codes = set()
            for _ in range(each):
                code, took_ms = await _send(served.port, data)
                codes.add(code)
                slowest_ms = max(slowest_ms, took_ms)
                peak_bytes = max(peak_bytes, served.memory_bytes)
            trial.equal(name, str(sorted(codes)), f"[{TOO_BIG}]")
        trial.most("closed after ms, max", slowest_ms, 50, timed=True)
        trial.most("MiB more", (peak_bytes - before_bytes) / 2**20, 1)
        trial.equal("complaints", len(served.complaints), 0)


async def _send(port: int, data: bytes) -> tuple[int, float]:
    """The close code that it brings, and after how many milliseconds."""
    client: Client = await connect(port)
    began_s = client.now()
    client.transport.write(data)
    async with asyncio.timeout(10):
        code = await client.closed
    return code, 1000 * (client.closed_s - began_s)
