from __future__ import annotations

import asyncio
from collections import Counter

from .scorecard.card import Trial, row
from .testbed.expected_audio import all_ended
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, text_of
from .testbed.raw_websocket import RawClient, clients, connect

EXPECTED = {"interrupted", "at_capacity", "done"}
SLOTS = 20
SOCKETS = 50
CONFIRMS_S = 0.15
"""How long the engine takes to confirm an abort."""


@row(
    "A5",
    "start/interrupt storm, 1,000/s, with an engine slow to confirm aborts",
    "slots never exceed the limit, unconfirmed aborts counted; then none is held",
    nightly_s=25,
)
async def start_storm(trial: Trial) -> None:
    per_s, seconds = trial.size(1000, least=100), trial.size(12, least=3)
    talker = {"close_s": CONFIRMS_S}
    async with tone_gateway(slots=SLOTS, talker=talker, queue_length=32, queue_wait_ms=500, **UNLIMITED) as served:
        listeners = await clients(served.port, SOCKETS)
        outcomes: Counter[str] = Counter()
        began_s = listeners[0].now()
        storm = (_storm(client, per_s / SOCKETS, seconds, n / per_s, outcomes) for n, client in enumerate(listeners))
        await asyncio.gather(*storm)
        rate = outcomes.total() / (listeners[0].now() - began_s)
        await served.until_idle()
        state = await served.ask("state")
        _, limits = await served.get("/v1/limits")
        trial.least("starts a second", rate, 0.8 * per_s, timed=True)
        trial.note("outcomes", ", ".join(f"{count} {name}" for name, count in outcomes.most_common()))
        trial.most("most slots in use", state["most_speeches"], SLOTS)
        # With a slot the engine has not confirmed given out again, the talker would refuse: an error of another text.
        engine_refusals = sum("no slot" in one.end.get("message", "") for c in listeners for one in c.heard.values())
        trial.equal("given out before it was confirmed", engine_refusals, 0)
        trial.equal("slots held afterwards", limits["utterances"]["active"] + limits["queue"]["waiting"], 0)
        trial.equal("unexpected", sum(outcomes[name] for name in outcomes if name not in EXPECTED), 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _storm(client: RawClient, per_s: float, seconds: float, offset_s: float, outcomes: Counter[str]) -> None:
    """Starts at fixed times; each is interrupted a moment later."""
    loop = asyncio.get_running_loop()
    at_s, heard = loop.time() + offset_s, []
    for number in range(int(per_s * seconds)):
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        at_s += 1 / per_s
        one = client.say("Never mind.", name=f"u{number}")
        heard.append(one)
        loop.call_later(0.03 * (number % 4), lambda name=f"u{number}": client.send(type="interrupt", utterance=name))
    await all_ended(heard, 20)
    outcomes.update(one.outcome for one in heard)


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


async def _all(served: GatewayProcess, count: int, once) -> float:
    """Do it `count` times. Returns how often a second."""
    loop = asyncio.get_running_loop()
    began_s, todo = loop.time(), iter(range(count))

    async def worker() -> None:
        for number in todo:
            await once(served.port, number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return count / (loop.time() - began_s)


async def _come_and_go(port: int, number: int) -> None:
    client: RawClient = await connect(port)
    if number % 2:
        await client.close()
    else:
        client.abort()


async def _reset_in_speech(port: int, number: int) -> None:
    client: RawClient = await connect(port)
    heard = client.say(text_of(10, number % 4))
    async with asyncio.timeout(20):
        while not heard.playback.arrivals and not heard.over.done():
            await asyncio.sleep(0.001)
    client.abort()


async def _calm(served: GatewayProcess) -> dict[str, int]:
    """The state once every connection is forgotten."""
    async with asyncio.timeout(30):
        while (await served.get("/v1/limits"))[1]["sockets"]["open"]:
            await asyncio.sleep(0.05)
    await served.until_idle()
    await asyncio.sleep(1)
    state: dict[str, int] = await served.ask("state")
    return state
