"""Three real gateways behind the real HAProxy: one is killed, or all are replaced one by one, while listeners hear."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from fakes.waiting import until
from voxgate.benchmarks.fleet import Balancer, balancer
from voxgate.client import Audio, AudioFormat, Resumed, connect

from .testbed.expected_audio import expected_packets
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, speech_text
from .testbed.measuring import Figures

HAPROXY = shutil.which("haproxy") or ""
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed")]

SPEECH_S = 20.0
LEAD_MS = 400
"""Audio that a listener has in hand when its replica is lost; so much of each loss is not heard."""
FRAME = {"frame_s": 0.02}
NOTICED_S = 8.0
"""Time to find another replica: six tries to resume, pauses, a handshake; the balancer's checks on a busy machine."""


class Listener:
    """What one listener received, and its longest wait for audio."""

    def __init__(self, number: int) -> None:
        self.text, self.codec = speech_text(SPEECH_S, number), ("pcm", "opus")[number % 2]
        self.digest = hashlib.sha256()
        self.samples = self.moves = 0
        self.longest_s = 0.0

    async def listen(self, url: str, *, moves: bool) -> None:
        loop = asyncio.get_running_loop()
        async with (
            connect(url, resume=moves) as session,
            session.utterance(format=AudioFormat(self.codec), seed=7) as utterance,  # type: ignore[arg-type]  # a codec
        ):
            await utterance.feed(self.text)
            last_s: float | None = None
            async for event in utterance.events():
                if isinstance(event, Resumed):
                    self.moves += event.moved
                elif isinstance(event, Audio):
                    self.longest_s = max(self.longest_s, 0.0 if last_s is None else loop.time() - last_s)
                    last_s = loop.time()
                    self.digest.update(event.payload)
                    self.samples += event.samples

    def check(self) -> None:
        assert (self.digest.hexdigest(), self.samples) == expected_packets(self.text, 7, self.codec)


@asynccontextmanager
async def fleet(folder: Path, count: int) -> AsyncIterator[tuple[Balancer, list[GatewayProcess]]]:
    async with AsyncExitStack() as stack:
        gateways = [
            tone_gateway(slots=32, talker=FRAME, haproxy_agent_port=0, shutdown_grace_s=60, **UNLIMITED)
            for _ in range(count)
        ]
        served = list(await asyncio.gather(*map(stack.enter_async_context, gateways)))
        yield await stack.enter_async_context(balancer(HAPROXY, [each.ready for each in served], folder)), served


async def hearing(
    front: Balancer, count: int, *, moves: bool = True
) -> tuple[list[Listener], asyncio.Future[list[None]]]:
    """Listeners that have received a second of audio."""
    listeners = [Listener(number) for number in range(count)]
    listening = asyncio.gather(*(each.listen(front.url, moves=moves) for each in listeners))
    await until(lambda: listening.done() or all(each.samples > 24_000 for each in listeners))
    return listeners, listening


async def test_killed_replica_loses_no_sample(tmp_path: Path, scaled: Callable[..., int], figures: Figures) -> None:
    async with fleet(tmp_path, 3) as (front, served):
        listeners, listening = await hearing(front, scaled(9, least=3))
        served[0].signal(signal.SIGKILL)
        await listening
        for each in listeners:
            each.check()
        moved = [each for each in listeners if each.moves]
        assert moved
        figures.note("listeners", len(listeners))
        figures.note("listeners of the killed replica", len(moved))
        silence_s = max(each.longest_s for each in listeners) - LEAD_MS / 1000
        figures.time_at_most("longest silence s", silence_s, NOTICED_S)


@pytest.mark.parametrize("moves", [True, False], ids=["checkpoints", "waiting"])
async def test_rolling_restart_loses_no_utterance(
    moves: bool, tmp_path: Path, scaled: Callable[..., int], figures: Figures
) -> None:
    """Three new replicas run; the three old ones are stopped one after the other, each when the one before has ended.

    Without checkpoints each waits for the end of its speech, as clients of service protocols make it do.
    """
    loop = asyncio.get_running_loop()
    async with fleet(tmp_path, 6) as (front, served):
        listeners, listening = await hearing(front, scaled(12, least=6), moves=moves)
        begun_s = loop.time()
        for gateway in served[:3]:
            gateway.signal(signal.SIGTERM)
            assert await gateway.exit_status() == 0
        restarted_s = loop.time() - begun_s
        await listening
        for each in listeners:
            each.check()
        assert moves == any(each.moves for each in listeners)
        figures.note("listeners", len(listeners))
        figures.note("moves", sum(each.moves for each in listeners))
        figures.note("restart of three replicas s", round(restarted_s, 1))
        silence_s = max(each.longest_s for each in listeners) - LEAD_MS / 1000
        figures.time_at_most("longest silence s", silence_s, NOTICED_S)
