"""Many sessions at once on one gateway: pace, exactness, event-loop lag and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from .testbed.expected_audio import all_ended, mismatches
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, run_listeners, speech_text
from .testbed.measuring import Figures, nightly
from .testbed.raw_websocket import connect_many

LAG_P99_MS, LAG_MAX_MS = 5, 50
IDLE_KIB, SPEAKING_KIB = 48, 384
SPEECH_S = 8.0
SETTLE_S = 1.0
"""Time for the kernel and the allocator after a thousand handshakes."""


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(
    ("codec", "sessions", "seconds", "max_gap_ms"),
    [("pcm", 5, 3, 90), nightly("pcm", 500, 40, 90), nightly("opus", 150, 40, 95)],
)
async def test_sessions_play_without_underrun(
    codec: str, sessions: int, seconds: int, max_gap_ms: float, scaled: Callable[..., int], figures: Figures
) -> None:
    count, seconds = scaled(sessions), scaled(seconds, least=3)
    async with tone_gateway(slots=count, **UNLIMITED) as gateway:
        await run_listeners(gateway.port, max(1, count // 10), 2, codec=codec)  # allocates what is allocated once
        await gateway.ask("watch_lag")
        cpu_s = gateway.cpu_s
        results = await run_listeners(gateway.port, count, seconds, codec=codec)
        lag_ms = await gateway.ask("lag")
        assert results.mismatches == []
        assert results.unfinished == []
        assert gateway.log_errors == []
        figures.note("sessions", count)
        figures.note("cores used by the gateway", (gateway.cpu_s - cpu_s) / seconds)
        figures.time_at_most("gap p99 ms", results.gap_p99_ms, max_gap_ms)
        figures.time_at_most("underruns with a buffer of 200 ms", results.underruns(), 0)
        figures.time_at_most("event-loop lag p99 ms", lag_ms["p99"], LAG_P99_MS)
        figures.time_at_most("event-loop lag max ms", lag_ms["max"], LAG_MAX_MS)


@pytest.mark.nightly
async def test_memory_per_connection(scaled: Callable[..., int], figures: Figures) -> None:
    idle, speaking = scaled(900, least=100), scaled(400, least=40)
    async with tone_gateway(slots=speaking, sockets=idle + 100, **UNLIMITED) as gateway:
        await run_listeners(gateway.port, 50, 2, codec="opus")  # allocates what is allocated once
        before_bytes = gateway.memory_bytes
        clients = await connect_many(gateway.port, idle)
        await asyncio.sleep(SETTLE_S)
        idle_bytes = gateway.memory_bytes
        figures.note("idle connections", idle)
        figures.at_most("KiB per idle connection", (idle_bytes - before_bytes) / idle / 1024, IDLE_KIB)
        received = [
            client.say(speech_text(SPEECH_S, number % 8), codec="opus")
            for number, client in enumerate(clients[:speaking])
        ]
        await asyncio.sleep(SPEECH_S / 2)
        figures.note("speaking", sum(one.outcome == "open" for one in received))
        per_speaker_kib = (gateway.memory_bytes - idle_bytes) / speaking / 1024
        figures.at_most("KiB more per speaking connection", per_speaker_kib, SPEAKING_KIB)
        await all_ended(received)
        assert mismatches(received) == []
        for client in clients:
            client.abort()
