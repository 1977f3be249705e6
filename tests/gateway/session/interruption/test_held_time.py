"""A hold stops the times of an utterance: pacing, the wait for text, slow reading; and it has an end itself."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run

from .hold_client import OTHER, RATE_HZ, TEXT, Ends, hold, now_s, received


def test_time_without_text_goes_on_where_the_hold_has_stopped_it() -> None:
    async def scene() -> None:
        async with InProcessGateway(text_idle_timeout_s=3) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="ab")
            await asyncio.sleep(2)
            hold(socket)
            await asyncio.sleep(5)
            socket.put(type="continue", utterance="a")
            await socket.until("continued")
            begun_s = now_s()
            await socket.until("warning")
            assert now_s() - begun_s == pytest.approx(1, abs=0.05)

    run(scene())


def test_generation_pauses_when_the_lookahead_is_full() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 3)
            await asyncio.sleep(1)
            hold(socket)
            await socket.until("interrupted")
            await asyncio.sleep(9)
            assert gateway.synthesizer.speeches[0].made <= 1 / 0.08 + 26

    run(scene())


@pytest.mark.parametrize("acks", [False, True])
def test_hold_is_neither_an_underrun_nor_slow_reading(acks: bool) -> None:
    async def scene() -> None:
        ends = Ends()
        async with InProcessGateway(observer=ends, slow_consumer_timeout_ms=1000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            if acks:
                socket.put(type="ack", utterance="a", played_samples=RATE_HZ)
            hold(socket)
            await asyncio.sleep(8)
            socket.put(type="ack", utterance="a", played_samples=2 * RATE_HZ)
            socket.put(type="continue", utterance="a")
            begun_s = now_s()
            while acks and not socket.of("done"):
                await asyncio.sleep(0.25)
                socket.put(type="ack", utterance="a", played_samples=round((1 + now_s() - begun_s) * RATE_HZ))
            done = await socket.until("done")
            assert socket.of("warning") == []
            assert ends.records[0].underruns == 0
            assert now_s() - begun_s == pytest.approx(done["audio_ms"] / 1000 - 1 - 0.4, abs=0.3), "at playback rate"

    run(scene())


def test_client_gains_no_lead_by_its_holds() -> None:
    """A hold is no time of playback, so acks of audio that was not played do not bring more."""

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 4)
            await asyncio.sleep(1)
            hold(socket)
            await asyncio.sleep(9)
            socket.put(type="continue", utterance="a")
            await socket.until("continued")
            for _ in range(20):
                await asyncio.sleep(0.05)
                socket.put(type="ack", utterance="a", played_samples=10**9)
            header = received(socket)[-1][0]
            assert (header.pts + header.samples) / RATE_HZ <= 2 + 2 * 0.4 + 0.1

    run(scene())


def test_held_utterances_end_with_the_longest_life_of_an_utterance() -> None:
    async def scene() -> None:
        async with InProcessGateway(utterance_timeout_s=20, hold_max_ms=2000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            while not socket.of("error"):
                hold(socket, hold_ms=2000)
                await asyncio.sleep(1.5)
                assert now_s() < 30
            assert socket.of("error")[0]["code"] == "utterance_timeout"

    run(scene())


def test_drain_waits_for_a_held_utterance_no_longer_than_it_is_held() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            hold(socket, hold_ms=3000)
            await socket.until("interrupted")
            gateway.sessions[0].drain(30_000, now_s())
            begun_s = now_s()
            assert await socket.hung_up() == 1012
            assert now_s() - begun_s == pytest.approx(3, abs=0.1)

    run(scene())


def test_held_utterance_is_not_told_to_starve() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM, starving_ms=300)
            socket.put(type="text", utterance="a", text=OTHER)
            await asyncio.sleep(0.2)
            hold(socket)
            await asyncio.sleep(5)
            assert socket.of("starving") == []
            socket.put(type="continue", utterance="a")
            assert (await socket.until("starving"))["audio_ms"] == pytest.approx(300, abs=80)

    run(scene())
