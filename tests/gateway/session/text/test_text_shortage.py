"""Notices that the talker waits for text: when they are sent, and what they say is left to play."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway
from fakes.gateway.websocket import FakeSocket
from fakes.virtual_time import run
from voxgate.gateway.session.text.text_shortage import MIN_INTERVAL_S, ORDINARY_GAP_S

SECOND = "x" * 25
"""Text of one second of audio."""


def begin(socket: FakeSocket, text: str = SECOND, **start: Any) -> None:
    socket.put(type="start", utterance="a", **{"format": PCM, "starving_ms": 500} | start)
    socket.put(type="text", utterance="a", text=text)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("starving_ms", "told_s", "audio_ms"), [(500, 0.5, 500), (100, 0.9, 100), (10_000, ORDINARY_GAP_S, 800)]
)
def test_wait_is_told_with_the_audio_that_is_left(starving_ms: int, told_s: float, audio_ms: int) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            begun_s = now_s()
            begin(socket, starving_ms=starving_ms)
            starving = await socket.until("starving")
            # Of 12.5 frames the talker has made those that the text allows.
            assert now_s() - begun_s == pytest.approx(told_s, abs=0.05)
            assert starving["audio_ms"] == pytest.approx(audio_ms, abs=41)

    run(scene())


def test_wait_is_told_once_and_the_next_one_again() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            begin(socket)
            await asyncio.sleep(5)
            assert len(socket.of("starving")) == 1
            socket.put(type="text", utterance="a", text=SECOND)
            await asyncio.sleep(5)
            assert len(socket.of("starving")) == 2
            socket.put(type="flush", utterance="a")
            await asyncio.sleep(5)
            assert [each["audio_ms"] for each in socket.of("starving")[2:]] == [pytest.approx(0, abs=81)]

    run(scene())


def test_audio_said_to_be_left_is_what_follows_until_the_gap() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            begin(socket)
            starving = await socket.until("starving")
            await asyncio.sleep(starving["audio_ms"] / 1000 - 0.1)
            socket.put(type="text", utterance="a", text=SECOND)
            socket.put(type="end", utterance="a")
            begun_s = now_s()
            done = await socket.until("done")
            assert now_s() - begun_s < done["audio_ms"] / 1000 - 0.8 - 0.3, "filled in time: nothing was sent late"
            assert gateway.synthesizer.speeches[0].suspensions == 0

    run(scene())


def test_trickle_of_text_is_told_at_most_once_a_second() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            begin(socket, "xxxx")
            begun_s = now_s()
            for _ in range(30):
                await asyncio.sleep(1.5 * ORDINARY_GAP_S)
                socket.put(type="text", utterance="a", text="xx")
            notices = len(socket.of("starving"))
            assert 3 <= notices <= 1 + (now_s() - begun_s) / MIN_INTERVAL_S

    run(scene())


def test_ordinary_pauses_between_tokens_are_not_told() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            begin(socket, "x")
            for _ in range(50):
                await asyncio.sleep(ORDINARY_GAP_S / 2)
                socket.put(type="text", utterance="a", text="x")
            assert not socket.of("starving")

    run(scene())


@pytest.mark.parametrize(
    "start", [{"starving_ms": 1, "layout": "non_streaming"}, {"starving_ms": 1, "pacing": "none"}, None]
)
def test_nothing_is_told_where_no_client_waits_for_it(start: dict[str, Any] | None) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", **{"format": PCM} | (start or {}))
            socket.put(type="text", utterance="a", text=SECOND)
            await asyncio.sleep(10)
            assert socket.of("started")
            assert not socket.of("starving")

    run(scene())


def test_end_of_the_text_is_no_shortage() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            begin(socket)
            socket.put(type="end", utterance="a")
            await socket.until("done")
            await asyncio.sleep(2)
            assert not socket.of("starving")

    run(scene())


@pytest.mark.parametrize("starving_ms", [0, 10_001, 1.5, True])
def test_other_values_are_refused(starving_ms: object) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", starving_ms=starving_ms)
            error = await socket.until("error")
            assert (error["code"], error["param"]) == ("bad_message", "starving_ms")

    run(scene())
