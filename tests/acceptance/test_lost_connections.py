"""Real connections that are cut, or hang, in the middle of speeches: every sample, and the longest silence."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

import pytest
from fakes.gateway.cut_proxy import CutProxy, cut_proxy
from fakes.waiting import until
from voxgate.client import Audio, AudioFormat, Resumed, connect
from voxgate.client.session_link import SILENCE_S

from .testbed.expected_audio import expected_packets
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, speech_text
from .testbed.measuring import Figures

SPEECH_S = 12.0
LEAD_MS = 400
"""Audio that a listener has in hand when its connection is lost; so much of each loss is not heard."""
OUTAGE_S = 5.0
RECONNECTING_S = 1.5
"""Time to reconnect once the network is back: a pause between attempts, and a handshake."""


class Heard:
    """What one listener received, and its longest wait for audio."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.samples = self.resumed = 0
        self.longest_s = 0.0

    async def listen(self, port: int, text: str, codec: str) -> None:
        loop = asyncio.get_running_loop()
        async with (
            connect(f"ws://127.0.0.1:{port}") as session,
            session.utterance(format=AudioFormat(codec), seed=7) as utterance,  # type: ignore[arg-type]  # a codec
        ):
            await utterance.feed(text)
            last_s: float | None = None
            async for event in utterance.events():
                if isinstance(event, Resumed):
                    self.resumed += 1
                elif isinstance(event, Audio):
                    self.longest_s = max(self.longest_s, 0.0 if last_s is None else loop.time() - last_s)
                    last_s = loop.time()
                    self.digest.update(event.payload)
                    self.samples += event.samples


async def _cut(proxy: CutProxy) -> None:
    proxy.cut()


async def _stop(proxy: CutProxy) -> None:
    """Passes nothing for `OUTAGE_S`; the connections from before stay dead."""
    proxy.stop()
    await asyncio.sleep(OUTAGE_S)
    proxy.go_on(forget=True)


async def _stall(proxy: CutProxy) -> None:
    """Passes nothing for `OUTAGE_S`; then the connections from before pass data again."""
    proxy.stop()
    await asyncio.sleep(OUTAGE_S)
    proxy.go_on(forget=False)


LOSSES = {"cut": (_cut, 0.0), "stop": (_stop, OUTAGE_S), "stall": (_stall, OUTAGE_S)}


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("stop", "stall")]


@pytest.mark.parametrize("loss", ["cut", *NIGHTLY])
async def test_lost_connections_lose_no_sample(loss: str, scaled: Callable[..., int], figures: Figures) -> None:
    count = scaled(8, least=2)
    lose, outage_s = LOSSES[loss]
    texts = [speech_text(SPEECH_S, number) for number in range(count)]
    async with tone_gateway(slots=4 * count, **UNLIMITED) as gateway, cut_proxy(gateway.port) as proxy:
        heard = [Heard() for _ in texts]
        codecs = [("pcm", "opus")[number % 2] for number in range(count)]
        listening = asyncio.gather(
            *(each.listen(proxy.port, text, codec) for each, text, codec in zip(heard, texts, codecs, strict=True))
        )
        await until(lambda: all(each.samples > 24_000 for each in heard))
        await lose(proxy)
        await listening
        for each, text, codec in zip(heard, texts, codecs, strict=True):
            assert (each.digest.hexdigest(), each.samples) == expected_packets(text, 7, codec)
        assert all(each.resumed for each in heard)
        await gateway.until_idle()
        assert gateway.log_errors == []
        silence_s = max(each.longest_s for each in heard) - LEAD_MS / 1000
        figures.note("listeners", count)
        noticing_s = 0.0 if loss == "cut" else max(0.0, 2 * SILENCE_S - outage_s)
        figures.time_at_most("longest silence s", silence_s, outage_s + noticing_s + RECONNECTING_S)
