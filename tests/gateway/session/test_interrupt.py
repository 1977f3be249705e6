"""Barge-in: silence at once, and an exact account of what was heard."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run

TEXT = "The quick brown fox jumps over the lazy dog. " * 3


def check_silence_after(socket: FakeSocket, number: int = 1) -> None:
    kinds = [m if isinstance(m, bytes) else '"interrupted"' in m for m in socket.sent]
    after = kinds[kinds.index(True) + 1 :]
    assert not any(isinstance(m, bytes) and int.from_bytes(m[4:8], "little") == number for m in after)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5, 1.234])
def test_nothing_follows_and_the_texts_join(after_s: float) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(after_s)
            socket.put(type="interrupt", utterance="a")
            answer = await socket.until("interrupted")
            await asyncio.sleep(5)
            check_silence_after(socket)
            assert answer["text_spoken"] + answer["text_remaining"] == TEXT
            assert answer["played_ms"] == pytest.approx(after_s * 1000, abs=12)
            assert len(answer["text_spoken"]) == pytest.approx(after_s / 0.04, abs=1)
            assert not socket.of("done")
            assert not socket.of("error")
            assert bench.admission.active == 0

    run(scene())


def test_the_clients_own_clock_counts_but_not_beyond_what_was_sent() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            for name, played_ms in (("a", 160), ("b", 10**9)):
                say(socket, name, TEXT)
                await asyncio.sleep(1)
                socket.put(type="interrupt", utterance=name, played_ms=played_ms)
                await asyncio.sleep(0.01)
            exact, boasted = socket.of("interrupted")
            assert (exact["played_ms"], exact["text_spoken"]) == (160, TEXT[:4])
            assert boasted["played_ms"] in range(1320, 1401)

    run(scene())


def test_acks_move_the_clock_that_answers() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(0.3)
            socket.put(type="ack", utterance="a", played_samples=2400)
            await asyncio.sleep(0.1)
            socket.put(type="interrupt", utterance="a")
            assert (await socket.until("interrupted"))["played_ms"] == pytest.approx(200, abs=2)

    run(scene())


def test_in_the_queue_nothing_was_spoken() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            say(socket, "b", "never heard")
            await socket.until("queued")
            socket.put(type="interrupt", utterance="b")
            answer = await socket.until("interrupted")
            assert (answer["text_spoken"], answer["text_remaining"]) == ("", "never heard")
            assert bench.admission.queued == 0
            assert len(bench.synthesizer.speeches) == 1

    run(scene())


def test_after_done_the_last_of_it_can_still_be_interrupted_once() -> None:
    async def scene() -> None:
        async with InProcessGateway(send_ahead_ms=400) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            done = await socket.until("done")
            socket.put(type="interrupt", utterance="a")
            answer = await socket.until("interrupted")
            assert answer["played_ms"] == pytest.approx(done["audio_ms"] - 400, abs=20)
            assert answer["text_spoken"] + answer["text_remaining"] == TEXT
            assert answer["text_remaining"]
            socket.put(type="interrupt", utterance="a")
            assert (await socket.until("error"))["code"] == "unknown_utterance"

    run(scene())


def test_the_slot_is_held_until_the_engine_confirms() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=0.5), slots=1) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(0.2)
            socket.put(type="interrupt", utterance="a")
            say(socket, "b", "Hi.")
            await socket.until("interrupted")
            assert (await socket.until("queued"))["position"] == 1
            await asyncio.sleep(0.4)
            assert len(socket.of("started")) == 1
            await socket.until("started", 2)
            await socket.until("done")
            assert bench.synthesizer.most_open == 1

    run(scene())


def test_a_storm_of_starts_and_interrupts_never_exceeds_the_slots() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=0.05), slots=2, starts_per_s=1e6, interrupts_per_s=1e6) as bench:
            sockets = [bench.connect(f"peer{i}") for i in range(4)]
            for turn in range(50):
                for socket in sockets:
                    name = f"u{turn}"
                    socket.put(type="start", utterance=name, format=PCM)
                    socket.put(type="text", utterance=name, text=TEXT)
                    if turn % 3:
                        await asyncio.sleep(0.003)
                    socket.put(type="interrupt", utterance=name)
                await asyncio.sleep(0.01)
            await asyncio.sleep(10)
            for socket in sockets:
                ended = len(socket.of("interrupted")) + len(
                    [e for e in socket.of("error") if e["code"] == "at_capacity"]
                )
                assert ended == 50
            assert bench.synthesizer.most_open <= 2
            assert bench.admission.active == 0

    run(scene())
