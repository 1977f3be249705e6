"""The speech engine dies or hangs under sessions that speak."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import psutil
import pytest
from fakes.waiting import until

from .testbed.expected_audio import all_ended
from .testbed.gateway_process import VOICE_START_S, GatewayProcess, voice_gateway
from .testbed.measuring import Figures
from .testbed.raw_websocket import connect_many

SESSIONS = 6
TEXT = "The bakery on the corner sells fresh bread every morning, and the coffee is very good. " * 4
LISTEN_S = 1.5
ERROR_MS = 1000
HANG_MS = 5000
"""An engine without a step for this time counts as hung."""
RECOVERY_RATIO = 1.2


@pytest.mark.nightly
@pytest.mark.engine
@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(("number", "max_error_ms"), [(signal.SIGKILL, ERROR_MS), (signal.SIGSTOP, HANG_MS + ERROR_MS)])
async def test_engine_loss_is_reported_and_recovered(
    number: signal.Signals, max_error_ms: float, scaled: Callable[..., int], figures: Figures
) -> None:
    """Every utterance ends with a typed, retryable error; sockets stay open; a new engine starts by itself."""
    began_s = time.monotonic()
    async with voice_gateway(starts_per_s=100) as gateway:
        cold_start_s = time.monotonic() - began_s
        figures.note("cold start s", cold_start_s)
        clients = await connect_many(gateway.port, SESSIONS)
        processes = len(gateway.children)
        for loss in range(scaled(1)):
            received = [client.say(TEXT, name=f"k{loss}", codec="pcm") for client in clients]
            await until(lambda received=received: all(one.playback.arrivals for one in received))
            await asyncio.sleep(LISTEN_S)
            engine_process(gateway).send_signal(number)
            lost_s = clients[0].now()
            await all_ended(received)
            assert [one.outcome for one in received] == ["engine_lost"] * SESSIONS
            assert all(one.end["retryable"] for one in received)
            error_ms = max(1000 * ((one.over_s or lost_s) - lost_s) for one in received)
            figures.time_at_most("error after ms, max", error_ms, max_error_ms)
            restart_s = await _until_ready(gateway)
            figures.time_at_most("restart relative to the cold start", restart_s / cold_start_s, RECOVERY_RATIO)
        assert [client.close_code for client in clients if client.closed.done()] == []
        assert len(gateway.children) <= processes
        after = clients[0].say("Here again.", name="after", pacing="none")
        assert await after.ended() == "done"


def engine_process(gateway: GatewayProcess) -> psutil.Process:
    """The process in which vLLM runs its steps."""
    return next(child for child in gateway.children if "EngineCore" in " ".join([child.name(), *child.cmdline()]))


async def _until_ready(gateway: GatewayProcess) -> float:
    """Wait until the gateway speaks again. Returns the seconds it took; raises TimeoutError."""
    began_s = time.monotonic()

    async def ready() -> bool:
        return (await gateway.get("/readyz"))[0] == 200

    await until(ready, VOICE_START_S)
    return time.monotonic() - began_s
