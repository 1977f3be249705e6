"""Text is taken back in every state of an utterance; see also `tests/acceptance/simulation/retractions.py`."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from fakes.gateway.in_process import PCM, InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from fakes.virtual_time import run, settle
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session.retraction.retraction import WAIT_S

SCRIPT = ToneScript(1.0, frame_s=0.01)
TEXT = "one two three four five six seven eight nine ten "
SEED = 3


def start(socket: FakeSocket, name: str = "u", text: str = TEXT, *, end: bool = False, **options: Any) -> None:
    socket.put(type="start", utterance=name, seed=SEED, **{"format": PCM, **options})
    socket.put(type="text", utterance=name, text=text)
    if end:
        socket.put(type="end", utterance=name)


def retract(socket: FakeSocket, characters: int = 0, name: str = "u", text: str = "") -> None:
    socket.put(type="retract", utterance=name, characters=characters)
    if text:
        socket.put(type="text", utterance=name, text=text)


def spoken(text: str) -> bytes:
    return s16le(tone_pcm(text, SEED, 1.0))


def heard(socket: FakeSocket, number: int = 1) -> bytes:
    return b"".join(payload for _, payload in socket.audio(number))


async def finished(socket: FakeSocket, expected: str, name: str = "u") -> dict[str, Any]:
    socket.put(type="end", utterance=name)
    done = await socket.until("done")
    assert heard(socket) == spoken(expected)
    assert done["characters"] == len(expected)
    return done


def test_speech_goes_on_with_other_text() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            socket = gateway.connect()
            start(socket, end=True)
            await asyncio.sleep(0.5)
            retract(socket, text="other words ")
            answer = await socket.until("retracted")
            at = answer["characters"]
            assert 0 < at < len(TEXT)
            assert answer == {
                "type": "retracted",
                "utterance": "u",
                "characters": at,
                "text": TEXT[at:],
                "void_from": at,
                "flush_at": at,
                "samples": at * 1920,
                "audio_ms": at * 80,
            }
            await finished(socket, TEXT[:at] + "other words ")
            assert not socket.of("queued")
            assert len(socket.of("started")) == 1

    run(scene())


def test_no_other_utterance_gets_the_slot_meanwhile() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.01, close_s=0.3), slots=1) as gateway:
            socket, other = gateway.connect(), gateway.connect("other")
            start(socket)
            await socket.until("started")
            await asyncio.sleep(0.5)
            start(other, end=True)
            await other.until("queued")
            retract(socket, text="other words ")
            await socket.until("retracted")
            await asyncio.sleep(0.5)
            assert gateway.synthesizer.most_open == 1
            assert len(gateway.synthesizer.speeches) == 2
            assert not other.of("started")
            socket.put(type="end", utterance="u")
            await socket.until("done")
            await other.until("done")

    run(scene())


def test_text_that_waits_for_a_slot_is_taken_back_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            busy, socket = gateway.connect("busy"), gateway.connect()
            start(busy, "b", end=True)
            await busy.until("started")
            start(socket, end=True)
            await socket.until("queued")
            retract(socket, 4, text="more ")
            answer = await socket.until("retracted")
            assert (answer["characters"], answer["text"]) == (4, TEXT[4:])
            assert not {"flush_at", "samples", "audio_ms"} & answer.keys()
            await finished(socket, "one more ")

    run(scene())


def test_an_utterance_whose_text_is_gone_leaves_the_queue() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            busy, socket = gateway.connect("busy"), gateway.connect()
            start(busy, "b", end=True)
            await busy.until("started")
            start(socket)
            await socket.until("queued")
            retract(socket)
            await socket.until("retracted")
            assert gateway.admission.queued == 0
            socket.put(type="text", utterance="u", text="anew ")
            await settle()
            assert gateway.admission.queued == 1
            await finished(socket, "anew ")

    run(scene())


def test_before_the_first_text_there_is_nothing_to_take_back() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="u", format=PCM, seed=SEED)
            retract(socket, 7)
            answer = await socket.until("retracted")
            assert (answer["characters"], answer["text"]) == (0, "")
            socket.put(type="end", utterance="u")
            assert (await socket.until("error"))["code"] == "empty_text"

    run(scene())


def test_an_utterance_that_is_all_made_asks_for_a_slot_again() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, close_s=0.1), slots=1) as gateway:
            socket, other = gateway.connect(), gateway.connect("other")
            start(socket, text="one two three ", end=True)
            while gateway.admission.active or not socket.of("started"):
                await asyncio.sleep(0.01)
            assert not socket.of("done")
            start(other, "o", "a b ", end=True)
            retract(socket, text="last ")
            answer = await socket.until("retracted")
            kept = answer["characters"]
            assert 0 < kept < len("one two three ")
            await finished(socket, "one two three "[:kept] + "last ")
            assert [header.seq for header, _ in socket.audio(1)] == list(range(kept + 5))
            await other.until("done")

    run(scene())


def test_an_utterance_that_gave_its_slot_up_goes_on_in_another() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            socket, other = gateway.connect(), gateway.connect("other")
            start(socket, text="one two ")
            await socket.until("started")
            start(other, "o", TEXT, end=True)
            await other.until("started")
            assert gateway.synthesizer.speeches[0].suspensions == 1
            retract(socket, text="three ")
            answer = await socket.until("retracted")
            assert (answer["characters"], answer["text"]) == (8, "")  # all of it was sent
            await finished(socket, "one two three ")

    run(scene())


def test_after_done_there_is_nothing_to_take_back() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT) as gateway:
            socket = gateway.connect()
            start(socket, text="one ", end=True)
            await socket.until("done")
            retract(socket)
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("utterance_ended", "u")
            socket.put(type="retract", utterance="v")
            assert (await socket.until("error", 2))["code"] == "unknown_utterance"

    run(scene())


def test_one_retraction_at_a_time_and_at_the_rate_of_starts() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.01, close_s=1.0), starts_per_s=1) as gateway:
            socket = gateway.connect()
            start(socket)
            await asyncio.sleep(0.5)
            for _ in range(3):
                retract(socket)
            error = await socket.until("error")
            assert error["code"] == "rate_limited"
            assert error["retry_after_ms"] > 0
            assert len(socket.of("retracted")) == 1
            for _ in range(3):
                retract(socket)
            await settle()
            assert "starts" in [each.get("reached") for each in socket.of("error")]
            socket.put(type="end", utterance="u")
            await socket.until("done")

    run(scene())


def test_an_interrupt_right_behind_a_retraction_knows_what_was_heard() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.01, close_s=0.2), slots=1) as gateway:
            socket = gateway.connect()
            start(socket)
            await asyncio.sleep(1.0)
            retract(socket, text="other ")
            answer = await socket.until("retracted")
            kept = TEXT[: answer["characters"]] + "other "
            for name in ("u", "u"):  # the second one is late
                socket.put(type="interrupt", utterance=name, played_ms=400)
            stopped = await socket.until("interrupted")
            assert (stopped["text_spoken"], stopped["text_remaining"]) == (kept[:5], kept[5:])
            assert stopped["played_ms"] == 400

    run(scene())


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3, 1.0])
def test_the_engine_may_be_lost_meanwhile(after_s: float) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.01, close_s=0.1), slots=1) as gateway:
            socket = gateway.connect()
            start(socket)
            await asyncio.sleep(0.7)
            retract(socket, text="other words ")
            answer = await socket.until("retracted")
            await asyncio.sleep(after_s)
            gateway.synthesizer.lose()
            await asyncio.sleep(0.4)
            await gateway.restart_engine()
            await finished(socket, TEXT[: answer["characters"]] + "other words ")

    run(scene())


def test_text_may_be_taken_back_while_the_engine_is_lost() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            socket = gateway.connect()
            start(socket)
            await asyncio.sleep(0.7)
            gateway.synthesizer.lose()
            await socket.until("warning")
            retract(socket, text="other words ")
            answer = await socket.until("retracted")
            await asyncio.sleep(1.0)
            await gateway.restart_engine()
            await finished(socket, TEXT[: answer["characters"]] + "other words ")

    run(scene())


def test_the_end_of_a_word_is_waited_for_but_not_long() -> None:
    """The talker is slower than playback, so that no more than what was sent is ever made."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.2), slots=1) as gateway:
            socket = gateway.connect()
            start(socket, text="extraordinarily long words ")
            await socket.until("started")
            await asyncio.sleep(1.0)
            asked_s = asyncio.get_running_loop().time()
            retract(socket, text="other ")
            answer = await socket.until("retracted")
            assert asyncio.get_running_loop().time() - asked_s == pytest.approx(WAIT_S, abs=0.05)
            assert answer["characters"] == len("extraordinarily ")
            await finished(socket, "extraordinarily other ")

    run(scene())


def test_the_length_is_told_again() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0), slots=1) as gateway:
            socket = gateway.connect(protocol=NativeProtocol(extended=True))
            start(socket, text="one two three four ", end=True)
            before = await socket.until("generated")
            retract(socket, text="no ")
            answer = await socket.until("retracted")
            done = await finished(socket, "one two three four "[: answer["characters"]] + "no ")
            told = socket.of("generated")
            assert told[0] == before
            assert all(each["samples"] == done["samples"] for each in told[1:])

    run(scene())


def test_offsets_count_as_the_client_does() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            socket = gateway.connect()
            start(socket, text="\U0001f600 two three four five six ", offsets="utf16", words=True)
            await asyncio.sleep(0.2)
            retract(socket, 3)
            answer = await socket.until("retracted")
            assert answer["characters"] == answer["flush_at"] == answer["void_from"] == answer["samples"] // 1920 + 1
            socket.put(type="end", utterance="u")
            assert (await socket.until("done"))["characters"] == answer["characters"]

    run(scene())


def test_text_that_was_taken_back_makes_room() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(SCRIPT, slots=1, max_characters=20)
        async with InProcessGateway(synthesizer=synthesizer) as gateway:
            socket = gateway.connect()
            start(socket, text="one two three four ")
            await asyncio.sleep(0.1)
            retract(socket, text="five six")
            answer = await socket.until("retracted")
            assert not socket.of("error")
            await finished(socket, "one two three four "[: answer["characters"]] + "five six")

    run(scene())


FORMATS: list[dict[str, Any]] = [
    {"codec": "opus", "sample_rate": 24_000, "packet_ms": 20},
    {"codec": "opus", "sample_rate": 48_000},
    {"codec": "ogg_opus", "sample_rate": 16_000},
    {"codec": "mulaw", "sample_rate": 8000, "packet_ms": 40},
    {"codec": "mp3", "sample_rate": 24_000},
    {"codec": "flac", "sample_rate": 22_050},
    {"codec": "wav", "sample_rate": 44_100, "packet_ms": 20},
]


@pytest.mark.parametrize("audio_format", FORMATS)
@pytest.mark.parametrize("framing", ["packets", "raw"])
def test_every_format_goes_on_to_the_byte(audio_format: dict[str, Any], framing: str) -> None:
    """What the client gets in all is what an encoder makes of the whole speech."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.01, chunk_frames=4), slots=1) as gateway:
            made: list[PacketEncoder] = []

            def make(wanted: Any) -> PacketEncoder:
                made.append(PacketEncoder(wanted))
                return made[-1]

            object.__setattr__(gateway.factory, "encoder_factory", make)
            socket = gateway.connect()
            start(socket, end=True, format=audio_format, framing=framing)
            await asyncio.sleep(0.9)
            retract(socket, text="other words ")
            answer = await socket.until("retracted")
            socket.put(type="end", utterance="u")
            done = await socket.until("done")
            text = TEXT[: answer["characters"]] + "other words "
            whole = made[0].renew()
            pcm = tone_pcm(text, SEED, 1.0)
            packets = [packet for begin in range(0, len(pcm), 1920) for packet in whole.push(pcm[begin : begin + 1920])]
            expected = b"".join(packet.payload for packet in [*packets, *whole.finish()])
            if framing == "raw":
                assert b"".join(each for each in socket.sent if isinstance(each, bytes)) == expected
            else:
                assert heard(socket) == expected
                headers = [header for header, _ in socket.audio(1)]
                assert [header.seq for header in headers] == list(range(len(headers)))
                assert [header.pts for header in headers] == np.cumsum([0, *(h.samples for h in headers)])[:-1].tolist()
            assert done["samples"] == whole.true_samples

    run(scene())


@pytest.mark.parametrize("close_s", [0.0, 0.5])
@pytest.mark.parametrize("ended", [False, True])
def test_text_of_a_held_utterance_is_taken_back(close_s: float, ended: bool) -> None:
    """What was sent and not heard is sent again as it was; what follows is other."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.01, close_s=close_s), slots=1) as gateway:
            socket = gateway.connect(protocol=NativeProtocol(extended=True))
            start(socket, end=ended)
            await asyncio.sleep(1.0)
            socket.put(type="interrupt", utterance="u", played_ms=500, hold_ms=5000)
            await socket.until("interrupted")
            retract(socket, text="other words ")
            answer = await socket.until("retracted")
            await asyncio.sleep(0.3)
            sent = len(socket.audio(1))
            socket.put(type="continue", utterance="u")
            going_on = await socket.until("continued")
            socket.put(type="end", utterance="u")
            done = await socket.until("done")
            assert going_on["seq"] == 500 // 80 < sent
            by_number = {header.seq: payload for header, payload in socket.audio(1)}
            text = TEXT[: answer["characters"]] + "other words "
            assert answer["samples"] >= sent * 1920
            assert list(by_number.values()) == [by_number[number] for number in range(len(by_number))]
            assert b"".join(by_number.values()) == spoken(text)
            again = [header.seq for header, _ in socket.audio(1)][sent:]
            assert again == list(range(going_on["seq"], len(by_number)))
            assert done["characters"] == len(text)

    run(scene())


def test_held_speech_that_gave_its_slot_up_amid_a_repetition_gets_one_for_the_next_retraction() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(1.0, frame_s=0.07), slots=1) as gateway:
            socket, other = gateway.connect(protocol=NativeProtocol(extended=True)), gateway.connect()
            start(socket, text="one two three four five six seven eight nine ten ", end=True)
            await asyncio.sleep(3)
            retract(socket)
            await socket.until("retracted")
            socket.put(type="interrupt", utterance="u", hold_ms=9000)
            start(other, text="eleven ", end=True)
            await other.until("done")
            retract(socket)
            socket.put(type="continue", utterance="u")
            socket.put(type="text", utterance="u", text="twelve ")
            socket.put(type="end", utterance="u")
            await socket.until("retracted", 2)
            await socket.until("done")

    run(scene())
