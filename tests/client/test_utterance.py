from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from fakes.gateway.protocol_server import FakeGateway, error_message
from fakes.virtual_time import run
from fakes.waiting import DEADLINE_S
from voxgate.client import (
    Audio,
    AudioFormat,
    ClientError,
    Generated,
    Interrupted,
    Notice,
    ProtocolViolation,
    Queued,
    Retracted,
    SpeechError,
    Starving,
    Words,
    connect,
)
from voxgate.client.events import Done, Started
from voxgate.client.utterance import Utterance


async def test_speech_begins_before_the_text_ends(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session, session.utterance() as utterance:
        audio = aiter(utterance.audio())
        for index, character in enumerate("Hello"):
            await utterance.send(character)
            assert (await anext(audio)).seq == index
        await utterance.end()
        last = await anext(audio)
        assert (last.last, last.samples, last.pts) == (True, 0, 5 * 1920)
        with pytest.raises(StopAsyncIteration):
            await anext(audio)
        assert utterance.done is not None
        assert utterance.done.samples == 5 * 1920


async def test_only_given_options_are_sent(gateway: FakeGateway) -> None:
    asked = AudioFormat(codec="opus", sample_rate=48_000, bitrate=64_000, packet_ms=20)
    async with connect(gateway.url) as session:
        async with session.utterance(
            voice="whistle",
            seed=3,
            format=asked,
            sampling={"temperature": 0},
            layout="non_streaming",
            trim_silence=True,
            markup=(),
            lead_ms=1000,
            rate=0.8,
            volume=1.5,
        ):
            pass
        async with session.utterance():
            pass
        async with session.utterance() as utterance:  # the gateway has read all earlier messages
            await utterance.feed("x")
            async for _ in utterance.audio():
                pass
    starts = [message for message in gateway.received if message["type"] == "start"]
    assert starts[0] == {
        "type": "start",
        "utterance": "u1",
        "voice": "whistle",
        "seed": 3,
        "sampling": {"temperature": 0},
        "layout": "non_streaming",
        "trim_silence": True,
        "markup": [],
        "rate": 0.8,
        "volume": 1.5,
        "pacing": "playback",
        "lead_ms": 1000,
        "format": {"codec": "opus", "sample_rate": 48_000, "bitrate": 64_000, "packet_ms": 20},
    }
    assert set(starts[1]) == {"type", "utterance", "pacing", "format"}


async def test_events_arrive_in_order(gateway: FakeGateway) -> None:
    gateway.queue = [2, 1]
    async with connect(gateway.url) as session, session.utterance(words=True) as utterance:
        await utterance.feed("Hi ho")
        events = [event async for event in utterance.events()]
    assert events[:2] == [Queued(2, 800), Queued(1, 400)]
    assert isinstance(events[2], Started)
    assert isinstance(events[-1], Done)
    spoken = [word.text for event in events if isinstance(event, Words) for word in event.words]
    assert spoken == ["Hi", "ho"]


async def test_interrupt_returns_the_spoken_text_and_drops_audio(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("Hello there")
        audio = aiter(utterance.audio())
        await anext(audio)
        answer = await utterance.interrupt(played_ms=400)
        assert answer == Interrupted(400, "Hello", " there")
        assert [chunk async for chunk in audio] == []
        assert await utterance.interrupt() is answer
        with pytest.raises(SpeechError, match="utterance_ended"):
            await utterance.send("more")


async def test_concurrent_interrupts_share_one_answer(gateway: FakeGateway) -> None:
    gateway.hold_after = 1
    async with connect(gateway.url) as session, session.utterance() as utterance, asyncio.timeout(DEADLINE_S):
        await utterance.send("Stop right here")
        await anext(aiter(utterance.audio()))
        hasty = asyncio.create_task(utterance.interrupt(played_ms=80))
        first, second = await asyncio.gather(*(utterance.interrupt(played_ms=80) for _ in range(2)))
        hasty.cancel()
        assert first == second == utterance.interrupted
    assert len([m for m in gateway.received if m["type"] == "interrupt"]) == 1


async def test_interrupt_is_answered_while_the_last_audio_plays(
    gateway: FakeGateway,
) -> None:
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.feed("Hi there")
        async for _ in utterance.audio():
            pass
        assert utterance.done is not None
        assert await utterance.interrupt(played_ms=160) == Interrupted(160, "Hi", " there")


async def test_interrupt_long_after_the_end_is_refused(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session:
        async with session.utterance() as utterance:
            await utterance.feed("Hi")
            async for _ in utterance.audio():
                pass
            gateway.utterances.clear()
            with pytest.raises(SpeechError, match="unknown_utterance"):
                await utterance.interrupt()
        with pytest.raises(ClientError, match="block of the utterance was left"):
            await utterance.interrupt()


async def test_refused_message_stops_the_speech(gateway: FakeGateway) -> None:
    gateway.script["x"] = [error_message("rate_limited", retryable=True, retry_after_ms=50, characters=3)]
    async with connect(gateway.url) as session:
        async with session.utterance() as utterance:
            await utterance.send("x")
            with pytest.raises(SpeechError, match="rate_limited") as refused:
                async for _ in utterance.audio():
                    pass
            assert refused.value.characters == 3
        async with session.utterance() as following:  # the gateway has read all earlier messages
            await following.feed("y")
            async for _ in following.audio():
                pass
    assert {"type": "interrupt", "utterance": "u1"} in gateway.received


async def test_ack_reports_played_samples(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("Hi")
        await anext(aiter(utterance.audio()))
        await utterance.ack(960)
        await utterance.interrupt()
    assert gateway.utterances["u1"].played_samples == 960


async def test_opus_packets_count_decoded_samples(gateway: FakeGateway) -> None:
    pytest.importorskip("opuslib")
    async with connect(gateway.url) as session:
        async with session.utterance(format=AudioFormat(codec="opus")) as utterance:
            await utterance.feed("Hello")
            packets = [audio async for audio in utterance.audio()]
        assert utterance.format.pre_skip == 156
        assert sum(packet.samples for packet in packets) == 6 * 1920
        assert utterance.done is not None
        assert utterance.done.samples == 5 * 1920


async def test_error_ends_the_utterance_with_its_code(gateway: FakeGateway) -> None:
    gateway.script["x"] = [error_message("at_capacity", retryable=True, retry_after_ms=700, reached="queue")]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("x")
        with pytest.raises(SpeechError) as error:
            async for _ in utterance.audio():
                pass
        assert (error.value.code, error.value.retryable, error.value.retry_after_ms) == (
            "at_capacity",
            True,
            700,
        )
        assert error.value.reached == "queue"
        with pytest.raises(SpeechError, match="at_capacity"):
            await utterance.end()


async def test_message_of_an_unknown_type_is_ignored(gateway: FakeGateway) -> None:
    gateway.script["x"] = [started(), {"type": "sing"}, audio_message(flags=3), done(2)]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.feed("x")
        assert len([audio async for audio in utterance.audio()]) == 1


async def test_length_is_told_ahead_of_the_end(gateway: FakeGateway) -> None:
    told = {"type": "generated", "samples": 2, "audio_ms": 1}
    gateway.script["x"] = [started(), told, audio_message(flags=3), done(2)]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.feed("x")
        events = [event async for event in utterance.events()]
    assert Generated(2, 1) in events
    assert gateway.headers["Sec-WebSocket-Protocol"] == "voxgate.v1"


async def test_wait_for_text_is_told_with_the_audio_that_is_left(gateway: FakeGateway) -> None:
    told = {"type": "starving", "audio_ms": 320}
    gateway.script["x"] = [started(), told, audio_message(flags=3), done(2)]
    async with connect(gateway.url) as session, session.utterance(starving_ms=500) as utterance:
        await utterance.feed("x")
        assert Starving(320) in [event async for event in utterance.events()]
    assert next(each for each in gateway.received if each["type"] == "start")["starving_ms"] == 500


async def test_refusal_is_raised_by_the_next_call_about_the_text(gateway: FakeGateway) -> None:
    """The refused fragment was the first call of the utterance."""
    gateway.script["x"] = [error_message("rate_limited", retryable=True, characters=0) | {"id": "text-1"}]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("x")
        assert isinstance(await anext(aiter(utterance.events())), Notice)
        with pytest.raises(SpeechError, match="rate_limited") as refused:
            await utterance.flush()
        assert (refused.value.message_id, refused.value.characters) == ("text-1", 0)
        await utterance.end()
        assert not utterance.finished


async def test_refused_ack_harms_nothing(gateway: FakeGateway) -> None:
    gateway.script["x"] = [error_message("rate_limited", retryable=True) | {"id": "ack-7"}]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("x")
        assert isinstance(await anext(aiter(utterance.events())), Notice)
        await utterance.send("yes")
        assert not utterance.finished


async def test_refused_fragment_is_reported_and_speech_continues(gateway: FakeGateway) -> None:
    gateway.script["long"] = [error_message("text_too_long", limit=3, received=4)]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("long")
        assert isinstance(await anext(aiter(utterance.events())), Notice)
        with pytest.raises(SpeechError, match="text_too_long"):
            await utterance.send("er")
        await utterance.end()
    assert gateway.received[-2]["type"] == "end"


def audio_message(
    number: int = 1, seq: int = 0, pts: int = 0, samples: int = 2, flags: int = 0, size: int = 4
) -> bytes:
    return struct.pack("<BBHIIQ", 1, flags, samples, number, seq, pts) + bytes(size)


def started(**changes: Any) -> dict[str, Any]:
    format = {"codec": "pcm", "sample_rate": 24_000, "packet_ms": 80, "pre_skip": 0}
    message = {"type": "started", "number": 1, "voice": "v", "language": "auto", "seed": 1, "format": format}
    return message | {"packet_samples": 1920} | changes


def done(samples: int) -> dict[str, Any]:
    return {
        "type": "done",
        "reason": "end",
        "characters": 1,
        "frames": 1,
        "samples": samples,
        "audio_ms": 1,
        "ttfa_ms": 1,
    }


async def test_done_of_a_gateway_that_sent_no_audio_has_no_time_to_it(gateway: FakeGateway) -> None:
    message = done(2)
    del message["ttfa_ms"]
    gateway.script["x"] = [started(), audio_message(flags=3), message]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("x")
        *_, last = [event async for event in utterance.events()]
        assert isinstance(last, Done)
        assert last.ttfa_ms is None


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([audio_message(seq=1, flags=1)], "seq must be 0, got 1"),
        ([audio_message(flags=1), audio_message(seq=1, pts=3)], "pts must be 2, got 3"),
        ([audio_message()], "flag of the first message"),
        ([audio_message(flags=3), audio_message(seq=1, pts=2)], "after the last"),
        ([audio_message(flags=1, size=6)], "must have 4 bytes, got 6"),
        ([audio_message(flags=3), done(3)], "done after 2 of 3"),
        ([audio_message(flags=1), done(2)], "done after 2 of 2"),
        ([{"type": "queued"}], "malformed 'queued'"),
    ],
)
async def test_protocol_violation_is_detected(gateway: FakeGateway, messages: list[Any], problem: str) -> None:
    gateway.script["x"] = [started(), *messages]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("x")
        with pytest.raises(ProtocolViolation, match=problem):
            async for _ in utterance.audio():
                pass


async def test_failing_text_source_ends_the_events() -> None:
    async def broken() -> Any:
        yield "half a "
        raise RuntimeError("the model went away")

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    utterance = Utterance("u1", AudioFormat(), send)
    with pytest.raises(RuntimeError, match="went away"):
        await utterance.feed(broken())
    with pytest.raises(RuntimeError, match="went away"):
        await anext(aiter(utterance.audio()))
    assert sent == [{"type": "text", "utterance": "u1", "id": "text-1", "text": "half a "}]


async def test_events_received_before_a_failure_are_delivered() -> None:
    async def send(_: dict[str, Any]) -> None: ...

    utterance = Utterance("u1", AudioFormat(), send)
    await utterance.receive(Audio(1, 0, 0, 2, bytes(4), True, False))
    utterance.fail(SpeechError("engine_lost", "gone", retryable=True, partial_audio=True))
    audio = aiter(utterance.audio())
    assert (await anext(audio)).samples == 2
    with pytest.raises(SpeechError, match="engine_lost"):
        await anext(audio)


async def test_held_utterance_ends_as_interrupted_when_another_gateway_takes_over() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    utterance = Utterance("u1", AudioFormat(), send)
    await utterance.receive(Started(1, "hum", "auto", 7, AudioFormat(), 1920))
    stopping = asyncio.create_task(utterance.interrupt(0, hold_ms=5000))
    await asyncio.wait([stopping], timeout=0)
    answer = Interrupted(0, "", "Hi", 5000)
    await utterance.receive(answer)
    assert await stopping == answer
    going_on = asyncio.create_task(utterance.continue_speech())
    await asyncio.wait([going_on], timeout=0)
    assert [message["type"] for message in sent] == ["interrupt", "continue"]
    assert list(utterance.restore(deadline_s=10)) == []
    assert utterance.interrupted == answer
    with pytest.raises(SpeechError, match="utterance_ended"):
        await going_on
    assert [event async for event in utterance.events()][-1] == answer


FIGURES = {"characters": 4, "void_from": 4, "flush_at": 4, "samples": 1, "audio_ms": 2}


@pytest.mark.parametrize("begun", [False, True])
def test_a_refused_message_does_not_have_a_moved_utterance_begin_again(begun: bool) -> None:
    async def scene() -> None:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        utterance = Utterance("u", AudioFormat(), send)
        await utterance.send("hello there ")
        list(utterance.restore(deadline_s=30))
        await utterance.send("more ")
        if begun:
            await utterance.receive(Started(1, "hum", "auto", 7, AudioFormat(), 1920))
        sent.clear()
        refusal = SpeechError("rate_limited", "too much text", retryable=True, message_id="text-2", retry_after_ms=10)
        await utterance.receive(refusal)
        await asyncio.sleep(5)
        assert sent == []

    run(scene())


async def test_text_is_taken_back(gateway: FakeGateway) -> None:
    gateway.script["one two"] = [{"type": "retracted", "text": "two", **FIGURES}]
    async with connect(gateway.url) as session, session.utterance() as utterance, asyncio.timeout(DEADLINE_S):
        await utterance.send("one two")
        await utterance.end()
        answer = await utterance.retract(1)
        assert answer == Retracted(4, "two", 4, 4, 1, 2)
        assert await anext(aiter(utterance.events())) == answer
        await utterance.send("three")  # the text is open again
    sent = [message for message in gateway.received if message["type"] == "retract"]
    assert sent == [{"type": "retract", "utterance": "u1", "id": "retract-3", "characters": 1}]


async def test_a_refused_retraction_ends_nothing(gateway: FakeGateway) -> None:
    gateway.script["one"] = [error_message("rate_limited", retryable=True) | {"id": "retract-2"}]
    async with connect(gateway.url) as session, session.utterance() as utterance, asyncio.timeout(DEADLINE_S):
        await utterance.send("one")
        with pytest.raises(SpeechError, match="rate_limited"):
            await utterance.retract()
        await utterance.send("more")
        assert not utterance.finished


async def test_a_retraction_of_an_utterance_that_ends_meanwhile_fails(gateway: FakeGateway) -> None:
    gateway.script["one"] = [error_message("engine_lost", retryable=True)]
    async with connect(gateway.url) as session, session.utterance() as utterance, asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(utterance.retract(timeout_s=DEADLINE_S))
        await asyncio.sleep(0)
        await utterance.send("one")
        with pytest.raises(SpeechError, match="engine_lost"):
            await waiting
