"""Utterances and connections that start and end at a high rate."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from fakes.waiting import until

from .testbed.expected_audio import all_ended
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, speech_text
from .testbed.measuring import Figures
from .testbed.raw_websocket import RawClient, connect, connect_many
from .testbed.tone_gateway import FREED_KEPT

pytestmark = pytest.mark.nightly

# Utterances

SLOTS = 20
SOCKETS = 50
OUTCOMES = {"interrupted", "at_capacity", "done"}
CONFIRM_S = 0.15
"""How long the engine takes to confirm an abort."""


@pytest.mark.usefixtures("quiet_machine")
async def test_start_storm_never_exceeds_slots(scaled: Callable[..., int], figures: Figures) -> None:
    """A slot whose release the engine has not confirmed is not given out again."""
    per_s, seconds = scaled(1000, least=100), scaled(12, least=3)
    talker = {"close_s": CONFIRM_S}
    async with tone_gateway(slots=SLOTS, talker=talker, queue_length=32, queue_wait_ms=500, **UNLIMITED) as gateway:
        clients = await connect_many(gateway.port, SOCKETS)
        outcomes: Counter[str] = Counter()
        began_s = clients[0].now()
        storm = (
            _start_and_interrupt(client, per_s / SOCKETS, seconds, n / per_s, outcomes)
            for n, client in enumerate(clients)
        )
        await asyncio.gather(*storm)
        rate_per_s = outcomes.total() / (clients[0].now() - began_s)
        await gateway.until_idle()
        state = await gateway.ask("state")
        _, limits = await gateway.get("/v1/limits")
        figures.note("outcomes", ", ".join(f"{count} {name}" for name, count in outcomes.most_common()))
        assert set(outcomes) <= OUTCOMES
        assert state["most_speeches"] <= SLOTS
        # The tone synthesizer refuses a slot that is still held, with a message of its own.
        received = [one for client in clients for one in client.received.values()]
        assert [one.end for one in received if "no slot" in one.end.get("message", "")] == []
        assert (limits["utterances"]["active"], limits["queue"]["waiting"]) == (0, 0)
        assert gateway.log_errors == []
        figures.time_at_least("starts per s", rate_per_s, 0.8 * per_s)


async def _start_and_interrupt(
    client: RawClient, per_s: float, seconds: float, offset_s: float, outcomes: Counter[str]
) -> None:
    """Start utterances at fixed times; interrupt each after up to 90 ms."""
    loop = asyncio.get_running_loop()
    at_s, received = loop.time() + offset_s, []
    for number in range(int(per_s * seconds)):
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        at_s += 1 / per_s
        received.append(client.say("Never mind.", name=f"u{number}"))
        loop.call_later(0.03 * (number % 4), lambda name=f"u{number}": client.send(type="interrupt", utterance=name))
    await all_ended(received)
    outcomes.update(one.outcome for one in received)


# Connections

AT_ONCE = 48
SETTLE_S = 1.0
"""Time for the allocator after the last connection."""
CONNECTIONS_PER_S = 1000
HELD_BLOCKS, HELD_KIB = 400, 256
"""Most growth of what is held at rest: blocks of Python's objects, and libraries. One object for each connection would
be 20,000 blocks."""
EXTRA_MIB = 16
"""Most growth of resident memory, which includes what the allocator keeps: 7 MiB after 20,000 connections."""


@pytest.mark.usefixtures("quiet_machine")
async def test_connection_churn_returns_everything(scaled: Callable[..., int], figures: Figures) -> None:
    """Memory, descriptors, tasks and slots return after connections that close and connections reset in speech."""
    count = scaled(10_000, least=200)
    async with tone_gateway(slots=2 * AT_ONCE, **UNLIMITED) as gateway:
        # Allocates what is allocated once.
        await _repeat(gateway, count // 4, _connect_and_close)
        await _repeat(gateway, max(count // 4, FREED_KEPT), _reset_in_speech)
        before, descriptors, resident_before = await _settled(gateway), gateway.descriptors, gateway.memory_bytes
        held_before = await gateway.ask("held")
        per_s = await _repeat(gateway, count, _connect_and_close)
        resets_per_s = await _repeat(gateway, count, _reset_in_speech)
        after = await _settled(gateway)
        assert after["speeches"] == 0
        assert after["tasks"] == before["tasks"]
        assert gateway.descriptors == descriptors
        assert gateway.log_errors == []
        figures.note("connections", count)
        figures.note("resets in speech per s", resets_per_s)
        resident, held = gateway.memory_bytes, await gateway.ask("held")
        figures.at_most("blocks more", held["blocks"] - held_before["blocks"], HELD_BLOCKS)
        figures.at_most("KiB more of libraries", (held["bytes"] - held_before["bytes"]) / 1024, HELD_KIB)
        figures.at_most("MiB more", (resident - resident_before) / 2**20, EXTRA_MIB)
        figures.time_at_least("connections per s", per_s, CONNECTIONS_PER_S)


async def _repeat(gateway: GatewayProcess, count: int, once: Callable[[int, int], Awaitable[None]]) -> float:
    """Call `once(port, number)` `count` times, `AT_ONCE` at a time. Returns the rate per second."""
    loop = asyncio.get_running_loop()
    began_s, numbers = loop.time(), iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await once(gateway.port, number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return count / (loop.time() - began_s)


async def _connect_and_close(port: int, number: int) -> None:
    client = await connect(port)
    if number % 2:
        await client.close()
    else:
        client.abort()


async def _reset_in_speech(port: int, number: int) -> None:
    client = await connect(port)
    received = client.say(speech_text(10, number % 4))
    await until(lambda: received.playback.arrivals or received.over.done())
    client.abort()


async def _settled(gateway: GatewayProcess) -> dict[str, int]:
    """The state of the gateway once every connection is forgotten."""
    await gateway.until_no_sockets()
    await gateway.until_idle()
    await asyncio.sleep(SETTLE_S)
    state: dict[str, int] = await gateway.ask("state")
    return state
