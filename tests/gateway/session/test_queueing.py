"""The admission queue and the text idle timeout, as a client sees them."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run

SHORT = "Wait for me. "
LONG = SHORT * 12


def test_position_decreases_until_a_slot_is_granted() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, send_ahead_ms=400, lookahead_ms=1000) as gateway:
            speaking, first, second = (gateway.connect(f"k{i}") for i in range(3))
            say(speaking, "a", SHORT * 3)
            say(first, "b", SHORT)
            await first.until("queued")
            say(second, "c", SHORT)
            await second.until("done")
            assert [m["position"] for m in first.of("queued")] == [1]
            assert [m["position"] for m in second.of("queued")] == [2, 1]
            assert all(m["eta_ms"] > 0 for m in second.of("queued"))
            assert [m["type"] for m in second.messages] == ["session", "queued", "queued", "started", "done"]

    run(scene())


def test_queued_utterance_fails_after_the_maximum_wait() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=3000) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="holds", format=PCM)
            socket.put(type="start", utterance="waits", format=PCM)
            await socket.until("queued")
            begin_s = asyncio.get_running_loop().time()
            error = await socket.until("error")
            assert asyncio.get_running_loop().time() - begin_s < 3.02
            assert (error["code"], error["utterance"], error["retryable"]) == ("at_capacity", "waits", True)
            assert error["retry_after_ms"] > 0
            assert gateway.admission.queued == 0

    run(scene())


def test_full_queue_refuses_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_length=1) as gateway:
            socket = gateway.connect()
            for name in "abc":
                say(socket, name, LONG)
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("at_capacity", "c")

    run(scene())


def test_queue_of_one_client_does_not_delay_another() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.05), slots=1, queue_wait_ms=60_000) as gateway:
            greedy, modest = gateway.connect("greedy"), gateway.connect("modest")
            for i in range(6):
                say(greedy, f"g{i}", SHORT)
            await greedy.until("queued", 5)
            say(modest, "m", SHORT)
            await modest.until("started")
            assert len(greedy.of("started")) == 2

    run(scene())


def test_disconnecting_client_leaves_the_queue() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            speaking, leaving, staying = (gateway.connect(f"k{i}") for i in range(3))
            speaking.put(type="start", utterance="a", format=PCM)
            await speaking.until("started")
            say(leaving, "b", SHORT)
            await leaving.until("queued")
            say(staying, "c", SHORT)
            await staying.until("queued")
            leaving.disconnect()
            assert (await staying.until("queued", 2))["position"] == 1
            speaking.disconnect()
            await staying.until("done")

    run(scene())


def test_utterance_without_new_text_is_finished_after_the_idle_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=LONG)
            await socket.until("started")
            begun_s = asyncio.get_running_loop().time()
            done = await socket.until("done")
            # The timeout counts from the last audio.
            assert asyncio.get_running_loop().time() - begun_s == pytest.approx(30 + done["audio_ms"] / 1000, abs=1)
            assert (done["reason"], done["characters"]) == ("end", len(LONG))
            (warning,) = socket.of("warning")
            assert (warning["code"], warning["utterance"]) == ("text_waited_out", "a")
            socket.put(type="text", utterance="a", text="More.")
            assert (await socket.until("error"))["code"] == "utterance_ended"

    run(scene())


def test_each_text_restarts_the_idle_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            for _ in range(4):
                await asyncio.sleep(25)
                socket.put(type="text", utterance="a", text=SHORT)
            socket.put(type="end", utterance="a")
            done = await socket.until("done")
            assert done["characters"] == 4 * len(SHORT)
            assert not socket.of("warning")

    run(scene())


def test_utterance_without_any_text_fails_after_the_idle_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as gateway:
            idle, waiting = gateway.connect(), gateway.connect("other")
            idle.put(type="start", utterance="a", format=PCM)
            await asyncio.sleep(29)
            say(waiting, "b", SHORT)
            assert (await idle.until("error"))["code"] == "empty_text"
            await waiting.until("done")

    run(scene())
