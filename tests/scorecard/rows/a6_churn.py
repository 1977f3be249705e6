from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..chorus import UNLIMITED, text_of
from ..gateways import Served, tone_gateway
from ..wire import Client, connect

AT_ONCE = 48


@row(
    "A6",
    "churn: 10,000 connections, 10,000 resets in mid-speech",
    "≥ 1,000/s, memory + ≤ 2 MiB, descriptors, tasks and slots back exactly",
    nightly_s=70,
    timed=True,
)
async def churn(trial: Trial) -> None:
    connections = trial.size(10_000, least=200)
    async with tone_gateway(slots=2 * AT_ONCE, **UNLIMITED) as served:
        await _all(served, connections // 4, _come_and_go)  # what is allocated once
        await _all(served, connections // 4, _reset_in_speech)
        before, before_bytes, descriptors = await _calm(served), served.memory_bytes, served.descriptors
        per_s = await _all(served, connections, _come_and_go)
        resets_per_s = await _all(served, connections, _reset_in_speech)
        after = await _calm(served)
        trial.note("connections", connections)
        trial.least("connections a second", per_s, 1000, timed=True)
        trial.note("resets in mid-speech a second", resets_per_s)
        trial.most("MiB more", (served.memory_bytes - before_bytes) / 2**20, 2)
        trial.equal("descriptors more", served.descriptors - descriptors, 0)
        trial.equal("tasks more", after["tasks"] - before["tasks"], 0)
        trial.equal("speeches left", after["speeches"], 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _all(served: Served, count: int, once) -> float:
    """Do it `count` times. Returns how often a second."""
    loop = asyncio.get_running_loop()
    began_s, todo = loop.time(), iter(range(count))

    async def worker() -> None:
        for number in todo:
            await once(served.port, number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return count / (loop.time() - began_s)


async def _come_and_go(port: int, number: int) -> None:
    client: Client = await connect(port)
    if number % 2:
        await client.close()
    else:
        client.abort()


async def _reset_in_speech(port: int, number: int) -> None:
    client: Client = await connect(port)
    heard = client.say(text_of(10, number % 4))
    async with asyncio.timeout(20):
        while not heard.playback.arrivals and not heard.over.done():
            await asyncio.sleep(0.001)
    client.abort()


async def _calm(served: Served) -> dict[str, int]:
    """The state once every connection is forgotten."""
    async with asyncio.timeout(30):
        while (await served.get("/v1/limits"))[1]["sockets"]["open"]:
            await asyncio.sleep(0.05)
    await served.until_idle()
    await asyncio.sleep(1)
    state: dict[str, int] = await served.ask("state")
    return state
