"""What is sent again after a hold: audio that was not heard, and nothing that was reported before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run

from .hold_client import RATE_HZ, TEXT, hold, received, spoken


def test_words_and_visemes_are_told_once_and_ahead_of_their_audio() -> None:
    async def scene(disturbed: bool) -> tuple[list[Any], list[Any]]:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, words=True, visemes=True)
            for _ in range(3 * disturbed):
                await asyncio.sleep(0.7)
                hold(socket)
                await asyncio.sleep(0.9)
                socket.put(type="continue", utterance="a")
            await socket.until("done")
            words = [word for message in socket.of("words") for word in message["words"]]
            return words, [shape for message in socket.of("visemes") for shape in message["visemes"]]

    undisturbed = run(scene(False))
    assert all(undisturbed)
    assert run(scene(True)) == undisturbed


def test_position_long_ago_goes_on_from_the_oldest_message_that_is_kept() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(3)
            hold(socket, played_ms=100)
            assert (await socket.until("interrupted"))["played_ms"] == 100
            socket.put(type="continue", utterance="a")
            continued = await socket.until("continued")
            assert continued["skip_samples"] == 0
            assert 3000 - 700 <= continued["played_ms"] == continued["seq"] * 80 <= 3000
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())


@pytest.mark.parametrize("format_", [PCM, {"codec": "pcm", "packet_ms": 20}])
def test_unpaced_utterance_sends_again_what_was_not_played(format_: dict[str, Any]) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.01)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, pacing="none", format=format_)
            await asyncio.sleep(0.3)
            sent_ms = sum(header.samples for header, _ in socket.audio()) * 1000 // RATE_HZ
            hold(socket, played_ms=sent_ms - 1000)
            await socket.until("interrupted")
            socket.put(type="continue", utterance="a")
            assert (await socket.until("continued"))["played_ms"] == sent_ms - 1000
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())


def test_audio_that_waits_for_a_blocked_socket_is_not_lost() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            socket.stop_reading()
            await asyncio.sleep(0.5)
            hold(socket)
            await asyncio.sleep(0.1)
            socket.read_again()
            await socket.until("interrupted")
            before = received(socket)[-1][0].seq
            socket.put(type="continue", utterance="a")
            assert (await socket.until("continued"))["seq"] <= before + 1
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())
