"""Interrupts: audio stops at once, and the answer says how much text was heard."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run, turns

TEXT = "The quick brown fox jumps over the lazy dog. " * 3


def check_no_audio_after_interrupt(socket: FakeSocket, number: int = 1) -> None:
    kinds = [m if isinstance(m, bytes) else '"interrupted"' in m for m in socket.sent]
    after = kinds[kinds.index(True) + 1 :]
    assert not any(isinstance(m, bytes) and int.from_bytes(m[4:8], "little") == number for m in after)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5, 1.234])
def test_interrupt_stops_audio_and_splits_the_text(after_s: float) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(after_s)
            socket.put(type="interrupt", utterance="a")
            answer = await socket.until("interrupted")
            await asyncio.sleep(5)
            check_no_audio_after_interrupt(socket)
            assert answer["text_spoken"] + answer["text_remaining"] == TEXT
            assert answer["played_ms"] == pytest.approx(after_s * 1000, abs=12)
            assert len(answer["text_spoken"]) == pytest.approx(after_s / 0.04, abs=1)
            assert not socket.of("done")
            assert not socket.of("error")
            assert gateway.admission.active == 0

    run(scene())


def test_played_ms_of_the_client_is_bounded_by_audio_sent() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            for name, played_ms in (("a", 160), ("b", 10**9)):
                say(socket, name, TEXT)
                await asyncio.sleep(1)
                socket.put(type="interrupt", utterance=name, played_ms=played_ms)
                await asyncio.sleep(0.01)
            exact, excessive = socket.of("interrupted")
            assert (exact["played_ms"], exact["text_spoken"]) == (160, TEXT[:4])
            assert excessive["played_ms"] in range(1320, 1401)

    run(scene())


def test_interrupt_uses_the_playback_clock_set_by_acks() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(0.3)
            socket.put(type="ack", utterance="a", played_samples=2400)
            await asyncio.sleep(0.1)
            socket.put(type="interrupt", utterance="a")
            assert (await socket.until("interrupted"))["played_ms"] == pytest.approx(200, abs=2)

    run(scene())


def test_interrupt_of_a_queued_utterance_leaves_all_text_unspoken() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            say(socket, "b", "never heard")
            await socket.until("queued")
            socket.put(type="interrupt", utterance="b")
            answer = await socket.until("interrupted")
            assert (answer["text_spoken"], answer["text_remaining"]) == ("", "never heard")
            assert gateway.admission.queued == 0
            assert len(gateway.synthesizer.speeches) == 1

    run(scene())


def test_done_utterance_can_be_interrupted_once() -> None:
    async def scene() -> None:
        async with InProcessGateway(send_ahead_ms=400) as gateway:
            socket = gateway.connect()
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


def test_slot_is_held_until_the_engine_confirms_the_end() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=0.5), slots=1) as gateway:
            socket = gateway.connect()
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
            assert gateway.synthesizer.most_open == 1

    run(scene())


def test_many_starts_and_interrupts_never_exceed_the_slots() -> None:
    script = ToneScript(close_s=0.05)

    async def scene() -> None:
        async with InProcessGateway(script, slots=2, starts_per_s=1e6, interrupts_per_s=1e6) as gateway:
            sockets = [gateway.connect(f"peer{i}") for i in range(4)]
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
            assert gateway.synthesizer.most_open <= 2
            assert gateway.admission.active == 0

    run(scene())


def test_interrupt_without_utterance_stops_all_that_the_client_plays() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            socket = gateway.connect()
            say(socket, "done", "Hi.")
            await socket.until("done")
            for name in ("speaks", "waits"):
                say(socket, name, TEXT)
            await socket.until("queued")
            socket.put(type="interrupt")
            await socket.until("interrupted", 3)
            answers = {m["utterance"]: m["text_spoken"] + m["text_remaining"] for m in socket.of("interrupted")}
            assert answers == {"done": "Hi.", "speaks": TEXT, "waits": TEXT}
            await asyncio.sleep(5)
            assert gateway.admission.active == 0
            socket.put(type="interrupt")
            say(socket, "next", "Hi.")
            await socket.until("done", 2)
            assert (len(socket.of("interrupted")), socket.of("error")) == (3, [])

    run(scene())


def test_interrupt_of_all_takes_no_playback_position() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            socket.put(type="interrupt", played_ms=10, id="i")
            error = await socket.until("error")
            assert (error["code"], error["param"], error["id"]) == ("bad_message", "played_ms", "i")
            await socket.until("done")

    run(scene())


def test_text_that_takes_several_turns_to_find_delays_only_the_next_messages() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(alignment_turns=50)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            socket.put(type="interrupt", utterance="a")
            say(socket, "a", "Again.")
            socket.put(type="ping", id="after")
            await turns(20)
            assert not socket.of("interrupted")
            assert gateway.admission.active == 0, "the slot is free before the answer"
            answer = await socket.until("interrupted")
            assert answer["text_spoken"] == TEXT[:25]
            check_no_audio_after_interrupt(socket)
            await socket.until("done")
            kinds = [m["type"] for m in socket.messages]
            assert kinds == ["session", "started", "interrupted", "started", "pong", "done"]

    run(scene())


def test_connection_that_ends_while_the_text_is_searched_leaves_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(alignment_turns=10**9)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            socket.put(type="interrupt", utterance="a")
            await turns(20)
            gateway.runs[0].cancel()
            await asyncio.sleep(1)

    run(scene())
