"""The queue in front of the talker's slots, as a client sees it."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run

SHORT = "Wait for me. "
LONG = SHORT * 12


def test_position_moves_up_until_the_slot_is_there() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, send_ahead_ms=400, lookahead_ms=1000) as bench:
            talker, first, second = (bench.connect(f"k{i}") for i in range(3))
            say(talker, "a", SHORT * 3)
            say(first, "b", SHORT)
            await first.until("queued")
            say(second, "c", SHORT)
            await second.until("done")
            assert [m["position"] for m in first.of("queued")] == [1]
            assert [m["position"] for m in second.of("queued")] == [2, 1]
            assert all(m["eta_ms"] > 0 for m in second.of("queued"))
            assert [m["type"] for m in second.messages] == ["session", "queued", "queued", "started", "done"]

    run(scene())


def test_nobody_waits_longer_than_the_limit() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=3000) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="holds", format=PCM)
            socket.put(type="start", utterance="waits", format=PCM)
            await socket.until("queued")
            begin_s = asyncio.get_running_loop().time()
            error = await socket.until("error")
            assert asyncio.get_running_loop().time() - begin_s < 3.02
            assert (error["code"], error["utterance"], error["retryable"]) == ("at_capacity", "waits", True)
            assert error["retry_after_ms"] > 0
            assert bench.admission.queued == 0

    run(scene())


def test_a_full_queue_refuses_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_length=1) as bench:
            socket = bench.connect()
            for name in "abc":
                say(socket, name, LONG)
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("at_capacity", "c")

    run(scene())


def test_one_clients_queue_does_not_hold_up_another() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.05), slots=1, queue_wait_ms=60_000) as bench:
            greedy, modest = bench.connect("greedy"), bench.connect("modest")
            for i in range(6):
                say(greedy, f"g{i}", SHORT)
            await greedy.until("queued", 5)
            say(modest, "m", SHORT)
            await modest.until("started")
            assert len(greedy.of("started")) == 2

    run(scene())


def test_who_leaves_makes_room() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as bench:
            talker, leaver, stayer = (bench.connect(f"k{i}") for i in range(3))
            talker.put(type="start", utterance="a", format=PCM)
            await talker.until("started")
            say(leaver, "b", SHORT)
            await leaver.until("queued")
            say(stayer, "c", SHORT)
            await stayer.until("queued")
            leaver.disconnect()
            assert (await stayer.until("queued", 2))["position"] == 1
            talker.disconnect()
            await stayer.until("done")

    run(scene())


def test_a_slot_is_not_held_for_text_that_does_not_come() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=LONG)
            await socket.until("started")
            begun_s = asyncio.get_running_loop().time()
            done = await socket.until("done")
            # It counts from when the listener has nothing more to hear.
            assert asyncio.get_running_loop().time() - begun_s == pytest.approx(30 + done["audio_ms"] / 1000, abs=1)
            assert (done["reason"], done["characters"]) == ("end", len(LONG))
            (warning,) = socket.of("warning")
            assert (warning["code"], warning["utterance"]) == ("text_waited_out", "a")
            socket.put(type="text", utterance="a", text="More.")
            assert (await socket.until("error"))["code"] == "utterance_ended"

    run(scene())


def test_text_that_comes_now_and_then_keeps_the_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            for _ in range(4):
                await asyncio.sleep(25)
                socket.put(type="text", utterance="a", text=SHORT)
            socket.put(type="end", utterance="a")
            done = await socket.until("done")
            assert done["characters"] == 4 * len(SHORT)
            assert not socket.of("warning")

    run(scene())


def test_who_never_writes_anything_loses_the_slot_too() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as bench:
            idle, waiting = bench.connect(), bench.connect("other")
            idle.put(type="start", utterance="a", format=PCM)
            await asyncio.sleep(29)
            say(waiting, "b", SHORT)
            assert (await idle.until("error"))["code"] == "empty_text"
            await waiting.until("done")

    run(scene())
