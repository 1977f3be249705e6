"""Faulty networks and exhausted file descriptors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes.waiting import until

from .testbed.expected_audio import all_ended, mismatches
from .testbed.fault_proxy import Fault, fault_proxy
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, speech_text
from .testbed.measuring import Figures
from .testbed.raw_websocket import RawClient, connect, connect_many

pytestmark = pytest.mark.nightly

# Faults of the network

PING_INTERVAL_S, PING_TIMEOUT_S = 2, 3
CLOSING_S = 1
SPEECH_S = 4.0
FAULTS_DONE_S = 1.5
"""By then the proxy has applied the fault to every connection."""
SLOW = {Fault.LATENCY, Fault.SLICES}
"""Faults that delay data and lose none."""


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("fault", list(Fault))
async def test_faulty_network(fault: Fault, seed: int, scaled: Callable[..., int], figures: Figures) -> None:
    """No client receives wrong audio, and the gateway gives back everything that lost connections held."""
    count = scaled(40, least=3)
    settings = UNLIMITED | {"ping_interval_s": PING_INTERVAL_S, "ping_timeout_s": PING_TIMEOUT_S}
    async with (
        tone_gateway(slots=count, **settings) as gateway,
        fault_proxy(gateway.port, fault, seed) as proxy,
    ):
        clients = await asyncio.gather(*(connect(proxy.port) for _ in range(count)))
        received = [
            client.say(speech_text(SPEECH_S, n % 4), codec=("pcm", "opus")[n % 2]) for n, client in enumerate(clients)
        ]
        if fault in SLOW:
            await all_ended(received)
            assert [one.outcome for one in received] == ["done"] * count
            for client in clients:
                client.abort()
        else:
            await asyncio.sleep(FAULTS_DONE_S)
        freed_s = await gateway.until_no_sockets()
        await gateway.until_idle()
        assert mismatches(received) == []
        assert gateway.log_errors == []
        figures.note("connections", count)
        figures.time_at_most("connections freed after s", freed_s, PING_INTERVAL_S + PING_TIMEOUT_S + CLOSING_S)


# File descriptors

DESCRIPTOR_SPEECH_S = 8.0
DESCRIPTORS_LEFT = 40
"""Descriptors left for new connections."""
ATTEMPTS = 120
ATTEMPT_S = 2.0
ACCEPTING_S = 1.0


@pytest.mark.usefixtures("quiet_machine")
async def test_descriptor_exhaustion_spares_running_sessions(scaled: Callable[..., int], figures: Figures) -> None:
    running = scaled(40, least=5)
    async with tone_gateway(slots=running) as gateway:
        clients = await connect_many(gateway.port, running)
        received = [client.say(speech_text(DESCRIPTOR_SPEECH_S, number % 8)) for number, client in enumerate(clients)]
        await until(lambda: all(one.playback.arrivals for one in received))
        gateway.limit_descriptors(gateway.descriptors + DESCRIPTORS_LEFT)
        attempts = await asyncio.gather(*(_attempt(gateway.port) for _ in range(ATTEMPTS)))
        opened = [client for client in attempts if client is not None]
        assert len(opened) < ATTEMPTS, "the descriptors did not run out"
        for client in opened:
            client.abort()
        loop = asyncio.get_running_loop()
        freed_s = loop.time()
        await until(lambda: _attempt(gateway.port))
        accepting_s = loop.time() - freed_s
        await all_ended(received)
        assert [one.outcome for one in received] == ["done"] * running
        assert mismatches(received) == []
        figures.note("running sessions", running)
        figures.note("new connections accepted", len(opened))
        figures.time_at_most("underruns", sum(one.playback.underruns(200) for one in received), 0)
        figures.time_at_most("accepting again after s", accepting_s, ACCEPTING_S)


async def _attempt(port: int) -> RawClient | None:
    """A session, or None when there is none within `ATTEMPT_S`."""
    try:
        async with asyncio.timeout(ATTEMPT_S):
            client = await connect(port)
    except (OSError, TimeoutError):
        return None
    return client if client.answered.result() == 101 else None
