"""Whole utterances over a fake socket in virtual time: what is sent, when, and what is left behind."""
# TODO-DOC Closing speeches: the ticket comes back last, whatever happens on the way.

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import FakeEncoder, s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSpeech, ToneSynthesizer, tone_pcm
from fakes.virtual_time import run
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.access.usage import Caller
from voxgate.gateway.session.admission import AdmissionQueue
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.gateway.transport.connection import SpeechCloser
from voxgate.pipeline.interface import SpeechRequest

TEXT = "The quick brown fox jumps over the lazy dog."


def check_audio(socket: FakeSocket, text: str, number: int = 1, seed: int = 7) -> None:
    """The oracle of every audio test: numbering without gap, and the very PCM of the text spoken offline."""
    parts = socket.audio(number)
    assert [h.seq for h, _ in parts] == list(range(len(parts)))
    pts = 0
    for header, payload in parts:
        assert header.pts == pts
        assert header.samples * 2 == len(payload)
        pts += header.samples
    assert [h.first for h, _ in parts] == [True] + [False] * (len(parts) - 1)
    assert [h.last for h, _ in parts] == [False] * (len(parts) - 1) + [True]
    assert b"".join(p for _, p in parts) == s16le(tone_pcm(text, seed))


def test_a_whole_utterance() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            done = await socket.until("done")
            check_audio(socket, TEXT)
            frames = len(TEXT) // 2
            assert done == {
                "type": "done",
                "utterance": "a",
                "reason": "end",
                "characters": len(TEXT),
                "frames": frames,
                "samples": frames * FRAME_SAMPLES,
                "audio_ms": frames * FRAME_MS,
                "ttfa_ms": 0,
            }
            assert [m["type"] for m in socket.messages] == ["session", "started", "done"]
            assert socket.of("started")[0] == {
                "type": "started",
                "utterance": "a",
                "number": 1,
                "voice": "ada",
                "language": "auto",
                "seed": 7,
                "format": {"codec": "pcm", "sample_rate": 24000, "packet_ms": 80, "pre_skip": 0},
                "packet_samples": 1920,
            }

    run(scene())


def test_text_by_characters_comes_to_the_same_audio() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.02)) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format={**PCM, "packet_ms": 20}, seed=3)
            for character in TEXT:
                socket.put(type="text", utterance="a", text=character)
                await asyncio.sleep(0.03)
            socket.put(type="end", utterance="a")
            await socket.until("done")
            check_audio(socket, TEXT, seed=3)

    run(scene())


def test_an_empty_fragment_is_no_text_to_wait_for() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="")
            await asyncio.sleep(1)
            socket.put(type="text", utterance="a", text=TEXT)
            socket.put(type="end", utterance="a")
            assert (await socket.until("done"))["ttfa_ms"] == 0
            check_audio(socket, TEXT)

    run(scene())


def test_several_utterances_at_once_on_one_socket() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            texts = {f"u{i}": TEXT[i:] for i in range(4)}
            for name, text in texts.items():
                say(socket, name, text)
            await socket.until("done", 4)
            for number, text in enumerate(texts.values(), start=1):
                check_audio(socket, text, number)

    run(scene())


@pytest.mark.parametrize("packet_ms", [80, 20])
def test_audio_leaves_at_the_pace_it_is_played(packet_ms: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(send_ahead_ms=400, lookahead_ms=1000) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT, format={**PCM, "packet_ms": packet_ms})
            done = await socket.until("done")
            times_s = [t for t, m in zip(socket.times_s, socket.sent, strict=True) if isinstance(m, bytes)]
            for time_s, (header, _) in zip(times_s, socket.audio(), strict=True):
                lookahead_ms = (header.pts + header.samples) / 24 - time_s * 1000
                assert lookahead_ms <= 400 + 2
                assert header.pts / 24 >= time_s * 1000 - 2, "it would be heard late"
            assert times_s[-1] * 1000 >= done["audio_ms"] - 400 - 2

    run(scene())


def test_the_talker_runs_ahead_of_the_listener_only_so_far() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=10), send_ahead_ms=400, lookahead_ms=1000) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 4)
            while not socket.of("done"):
                await asyncio.sleep(0.05)
                speech = bench.synthesizer.speeches[0]
                assert speech.made - speech.heard <= 10
            check_audio(socket, TEXT * 4)

    run(scene())


def test_a_stream_that_ran_dry_is_reported_as_heard_to_its_last_frame() -> None:
    """Nothing else happens on the socket meanwhile: the talker and the codec must still learn that time is short."""

    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=TEXT[:20])
            await asyncio.sleep(5)
            speech = bench.synthesizer.speeches[0]
            assert len(socket.audio(1)) == speech.heard == 10

    run(scene())


def test_without_pacing_everything_leaves_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 10, pacing="none")
            await socket.until("done")
            check_audio(socket, TEXT * 10)
            assert socket.times_s[-1] <= 0.01

    run(scene())


def test_words_are_told_only_when_asked_for() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT, words=True)
            say(socket, "b", TEXT)
            await socket.until("done", 2)
            told = [w for m in socket.of("words") for w in m["words"]]
            assert " ".join(w["text"] for w in told) == TEXT
            assert all(TEXT[w["start"] : w["end"]] == w["text"] for w in told)
            assert {m["utterance"] for m in socket.of("words")} == {"a"}
            assert all(m["approximate"] is True for m in socket.of("words"))

    run(scene())


def test_speeches_take_turns_where_their_sound_is_there_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            for socket in (bench.connect(), bench.connect()):
                say(socket, "a", TEXT)
            made = [0, 0]
            while max(made) < 20:
                await asyncio.sleep(0)
                made = [speech.made for speech in bench.synthesizer.speeches] or [0, 0]
                assert max(made) - min(made) <= 2

    run(scene())


async def utterance(admission: AdmissionQueue, synthesizer: ToneSynthesizer) -> ServerUtterance:
    audio_format, request = OutputFormat("pcm"), SpeechRequest("ada")
    made = ServerUtterance(
        "a",
        1,
        request,
        audio_format,
        FakeEncoder(audio_format),
        max_characters=100,
        send_ahead_ms=400,
        outbox_ms=1000,
        words=False,
    )
    await synthesizer.start()
    made.ticket = admission.enqueue(Caller("k", KeyLimits()), lambda _ticket, _now_s: None, 0.0)
    made.speech = synthesizer.open(request)
    return made


def test_the_ticket_comes_back_when_the_engine_confirmed() -> None:
    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        retired = await utterance(admission, ToneSynthesizer(ToneScript(close_s=0.5)))
        listening = asyncio.create_task(asyncio.sleep(100))
        speech_closer.close(retired, listening)
        await asyncio.sleep(0.4)
        assert listening.cancelled()
        assert (admission.active, speech_closer.closing) == (1, 1)
        await speech_closer.finish(1)
        assert (admission.active, speech_closer.closing) == (0, 0)

    run(scene())


def test_a_close_that_fails_gives_the_ticket_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: ToneSpeech) -> None:
        raise RuntimeError("scripted")

    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        retired = await utterance(admission, ToneSynthesizer())
        monkeypatch.setattr(ToneSpeech, "aclose", fail)
        speech_closer.close(retired, None)
        await speech_closer.finish(1)
        assert admission.active == 0

    run(scene())


def test_the_wait_for_the_last_ones_is_bounded() -> None:
    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        speech_closer.close(await utterance(admission, ToneSynthesizer(ToneScript(close_s=100))), None)
        await speech_closer.finish(2.0)
        assert asyncio.get_running_loop().time() == pytest.approx(2.0)
        assert admission.active == 1

    run(scene())
