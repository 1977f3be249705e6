from __future__ import annotations

import asyncio

from ..bad_network import Fault, bad_network
from ..card import Trial, row
from ..chorus import UNLIMITED, text_of
from ..gateways import Served, tone_gateway
from ..oracle import all_ended, mismatches
from ..wire import Client, connect

PING_INTERVAL_S, PING_TIMEOUT_S = 2, 3
CLOSING_S = 1
SPEECH_S = 4.0
ARRIVES = {Fault.LATENCY, Fault.SLICES}
"""A network that is only slow loses nothing."""


@row(
    "F6",
    "bad network: latency, 1-byte slices, reset, half-close, silence",
    "0 corrupt audio, everything freed ≤ ping interval + timeout + 1 s",
    nightly_s=35,
)
async def network_faults(trial: Trial) -> None:
    each = trial.size(40, least=3)
    settings = UNLIMITED | {"ping_interval_s": PING_INTERVAL_S, "ping_timeout_s": PING_TIMEOUT_S}
    async with tone_gateway(slots=each, **settings) as served:
        corrupt, freed_s = 0, 0.0
        for fault in Fault:
            spoilt, seconds = await _through(served, fault, each, trial)
            corrupt += spoilt
            freed_s = max(freed_s, seconds)
        trial.note("connections a fault", each)
        trial.equal("corrupt", corrupt, 0)
        trial.most("freed after s, max", freed_s, PING_INTERVAL_S + PING_TIMEOUT_S + CLOSING_S)
        trial.equal("sockets left", (await served.get("/v1/limits"))[1]["sockets"]["open"], 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _through(served: Served, fault: Fault, count: int, trial: Trial) -> tuple[int, float]:
    """Speak over that network. Returns how many heard something else, and when the gateway had forgotten them."""
    async with bad_network(served.port, fault, trial.seed) as network:
        listeners: list[Client] = await asyncio.gather(*(connect(network.port) for _ in range(count)))
        heard = [
            client.say(text_of(SPEECH_S, n % 4), codec=("pcm", "opus")[n % 2]) for n, client in enumerate(listeners)
        ]
        if fault in ARRIVES:
            await all_ended(heard, 60)
            trial.equal(f"done with {fault}", sum(one.outcome == "done" for one in heard), count)
        else:
            await asyncio.sleep(1.5)  # by then it has struck everywhere
        began_s = asyncio.get_running_loop().time()
        if fault in ARRIVES:
            for client in listeners:
                client.abort()
        async with asyncio.timeout(60):
            while (await served.get("/v1/limits"))[1]["sockets"]["open"]:
                await asyncio.sleep(0.1)
        await served.until_idle()
        return len(mismatches(heard)), asyncio.get_running_loop().time() - began_s
