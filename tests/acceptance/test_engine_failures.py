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

SESSIONS = 8
SEED = 7
BUFFER_MS = 200.0
"""Of a listener's player."""
TEXT = "The bakery on the corner sells fresh bread every morning, and the coffee is very good. " * 4
LISTEN_S = 1.5
SEAM_MS = 1000
"""From the end of the restart to the first audio, less the audio that was made ahead."""
HANG_MS = 5000
"""An engine without a step for this time counts as hung."""
RECOVERY_RATIO = 1.2


@pytest.mark.nightly
@pytest.mark.engine
@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(("number", "hang_ms"), [(signal.SIGKILL, 0), (signal.SIGSTOP, HANG_MS)])
async def test_utterances_continue_after_the_loss_of_the_engine(
    number: signal.Signals, hang_ms: float, scaled: Callable[..., int], figures: Figures
) -> None:
    """Every utterance is complete, its listener hears one pause; a new engine starts by itself."""
    began_s = time.monotonic()
    async with voice_gateway(starts_per_s=100, engine_loss_timeout_s=VOICE_START_S) as gateway:
        cold_start_s = time.monotonic() - began_s
        figures.note("cold start s", cold_start_s)
        clients = await connect_many(gateway.port, SESSIONS)
        processes = len(gateway.children)
        for loss in range(scaled(1)):
            undisturbed = clients[0].say(TEXT, name=f"e{loss}", codec="pcm", seed=SEED, pacing="none")
            assert await undisturbed.ended() == "done"
            received = [client.say(TEXT, name=f"k{loss}", codec="pcm", seed=SEED) for client in clients]
            await until(lambda received=received: all(one.playback.arrivals for one in received))
            await asyncio.sleep(LISTEN_S)
            engine_process(gateway).send_signal(number)
            restart_s = await _until_ready(gateway)
            await all_ended(received, VOICE_START_S)
            assert [(one.outcome, one.disorder) for one in received] == [("done", "")] * SESSIONS
            assert {one.end["audio_ms"] for one in received} == {undisturbed.end["audio_ms"]}
            silences_s = [max(one.playback.silences_s(BUFFER_MS), default=0.0) for one in received]
            figures.note("longest silence of each listener s", " ".join(f"{each:.1f}" for each in sorted(silences_s)))
            figures.time_at_most("restart relative to the cold start", restart_s / cold_start_s, RECOVERY_RATIO)
            figures.time_at_most(
                "silence after the restart ms", 1000 * (max(silences_s) - restart_s), SEAM_MS + hang_ms
            )
        assert [client.close_code for client in clients if client.closed.done()] == []
        assert len(gateway.children) <= processes


def engine_process(gateway: GatewayProcess) -> psutil.Process:
    """The process in which vLLM runs its steps."""
    return next(child for child in gateway.children if "EngineCore" in " ".join([child.name(), *child.cmdline()]))


async def _until_ready(gateway: GatewayProcess) -> float:
    """Wait until the gateway has noticed the loss and speaks again; the seconds it took. Raises TimeoutError."""
    began_s = time.monotonic()

    async def ready() -> bool:
        return (await gateway.get("/readyz"))[0] == 200

    async def lost() -> bool:
        return not await ready()

    await until(lost)
    await until(ready, VOICE_START_S)
    return time.monotonic() - began_s
