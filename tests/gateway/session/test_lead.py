"""How far audio is sent ahead: the client chooses, and the slow-consumer timeout follows."""

from __future__ import annotations

import asyncio

from fakes.gateway.in_process import InProcessGateway, say
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run

TEXT = "A sentence of some length. "


def test_lead_of_the_start_message_is_sent_ahead() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=100), lookahead_ms=6000) as gateway:
            for lead_ms in (80, 400, 3000):
                socket = gateway.connect()
                say(socket, "a", TEXT * 20, lead_ms=lead_ms)
                await socket.until("started")
                await asyncio.sleep(1)
                sent_ms = sum(header.samples for header, _ in socket.audio()) / 24
                assert 1000 + lead_ms - 160 <= sent_ms <= 1000 + lead_ms + 80
                socket.disconnect()

    run(scene())


def test_lead_beyond_what_is_generated_ahead_is_refused() -> None:
    async def scene() -> None:
        async with InProcessGateway(lookahead_ms=2000) as gateway:
            socket = gateway.connect()
            limits = (await socket.until("session"))["limits"]
            assert (limits["lead_ms"], limits["lead_max_ms"]) == (400, 1840)
            say(socket, "a", TEXT, lead_ms=1841)
            error = await socket.until("error")
            assert (error["code"], error["param"]) == ("unsupported_option", "lead_ms")

    run(scene())


def test_network_pause_shorter_than_the_lead_is_no_slow_consumer() -> None:
    """The client reads nothing for 2.5 s, as with a hole in the network; its player has audio for longer."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=100), lookahead_ms=6000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 20, lead_ms=3000)
            await socket.until("started")
            await asyncio.sleep(4)
            socket.stop_reading(buffered=True)
            await asyncio.sleep(2.5)
            socket.read_again()
            await socket.until("done")
            assert not socket.of("warning")

    run(scene())
