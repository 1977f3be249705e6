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
            for name in ("holds", "waits"):
                say(socket, name, LONG)
            await socket.until("queued")
            begin_s = asyncio.get_running_loop().time()
            error = await socket.until("error")
            assert asyncio.get_running_loop().time() - begin_s < 3.02
            assert (error["code"], error["utterance"], error["retryable"]) == ("at_capacity", "waits", True)
            assert error["retry_after_ms"] > 0
            assert error["reached"] == "queue_wait"
            assert gateway.admission.queued == 0

    run(scene())


def test_full_queue_refuses_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_length=1) as gateway:
            socket = gateway.connect()
            for name in "abc":
                say(socket, name, LONG)
            error = await socket.until("error")
            assert (error["code"], error["utterance"], error["reached"]) == ("at_capacity", "c", "queue")

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
            assert len(greedy.of("started")) == 1

    run(scene())


def test_disconnecting_client_leaves_the_queue() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            speaking, leaving, staying = (gateway.connect(f"k{i}") for i in range(3))
            speaking.put(type="start", utterance="a", format=PCM)
            speaking.put(type="text", utterance="a", text=SHORT)
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
            idle, other = gateway.connect(), gateway.connect("other")
            idle.put(type="start", utterance="a", format=PCM)
            await asyncio.sleep(29)
            say(other, "b", SHORT)
            await other.until("done")
            assert not other.of("queued"), "an utterance without text holds no slot"
            assert (await idle.until("error"))["code"] == "empty_text"
            assert not idle.of("started")

    run(scene())


@pytest.mark.parametrize("texts", [[], [" ", "\n"], ["<|im_", "end|>"], ["<emphasis ", "level='1'>"]])
def test_utterance_takes_a_slot_with_its_first_speakable_text(texts: list[str]) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            for text in texts:
                socket.put(type="text", utterance="a", text=text)
            await asyncio.sleep(1)
            assert (gateway.admission.active, gateway.admission.queued) == (0, 0)
            assert [m["type"] for m in socket.messages] == ["session"]
            socket.put(type="text", utterance="a", text="W")
            await socket.until("started")
            assert gateway.admission.active == 1
            socket.put(type="text", utterance="a", text="ait.")
            socket.put(type="end", utterance="a")
            assert (await socket.until("done"))["characters"] == len("".join(texts)) + 5
            assert gateway.synthesizer.speeches[0].text == "".join(texts) + "Wait."

    run(scene())


@pytest.mark.parametrize("kind", ["flush", "end"])
def test_punctuation_alone_takes_a_slot_when_it_is_flushed_or_ended(kind: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="...")
            await asyncio.sleep(1)
            assert gateway.admission.active == 0
            socket.put(type=kind, utterance="a")
            await socket.until("started")
            socket.put(type="interrupt", utterance="a")
            await socket.until("interrupted")

    run(scene())


def test_full_queue_ends_the_utterance_with_its_first_text() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_length=0) as gateway:
            socket = gateway.connect()
            for name in "ab":
                socket.put(type="start", utterance=name, format=PCM)
                socket.put(type="text", utterance=name, text=SHORT, id=name)
            error = await socket.until("error")
            assert (error["code"], error["utterance"], error["id"]) == ("at_capacity", "b", "b")
            socket.put(type="text", utterance="b", text=SHORT)
            assert (await socket.until("error", 2))["code"] == "unknown_utterance"
            socket.put(type="end", utterance="a")
            await socket.until("done")

    run(scene())


def test_one_character_at_a_time_does_not_hold_a_slot_beyond_the_utterance_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30, utterance_timeout_s=100) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            begun_s = asyncio.get_running_loop().time()
            while not socket.of("error"):
                socket.put(type="text", utterance="a", text="x")
                await asyncio.sleep(29)
            assert (socket.of("error")[0]["code"], socket.of("error")[0]["utterance"]) == ("utterance_timeout", "a")
            assert asyncio.get_running_loop().time() - begun_s < 100 + 3 * 0.4 + 30
            assert gateway.admission.active == 0

    run(scene())


def test_reader_of_one_message_at_a_time_does_not_hold_a_slot_beyond_the_utterance_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, utterance_timeout_s=100) as gateway:
            socket = gateway.connect()
            send = socket.send

            def send_and_block(message: str | bytes) -> None:
                send(message)
                socket.stop_reading()

            monkeypatch.setattr(socket, "send", send_and_block)
            say(socket, "a", LONG * 12, pacing="none")
            begun_s = asyncio.get_running_loop().time()
            while gateway.admission.active or not socket.audio():
                await asyncio.sleep(25)
                socket.read_again()
            assert asyncio.get_running_loop().time() - begun_s == pytest.approx(100 + 3 * 0.08 * 4, abs=26)
            while not socket.of("error"):
                await asyncio.sleep(25)
                socket.read_again()
            assert [error["code"] for error in socket.of("error")] == ["utterance_timeout"]

    run(scene())


def test_long_speech_at_playback_pace_outlasts_the_utterance_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(utterance_timeout_s=5) as gateway:
            socket = gateway.connect()
            say(socket, "a", LONG * 12)
            await asyncio.sleep(70)
            assert (await socket.until("done"))["audio_ms"] > 60_000

    run(scene())
