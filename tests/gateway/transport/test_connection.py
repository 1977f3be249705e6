"""A connection on a fake socket in virtual time: audio, pacing, word times, and closing speeches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import FakeEncoder, s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSpeech, ToneSynthesizer, tone_pcm
from fakes.virtual_time import VirtualTimeLoop, run, settle
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.session.admission import AdmissionQueue
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.gateway.transport.connection import SpeechCloser
from voxgate.pipeline.interface import SpeechRequest

TEXT = "The quick brown fox jumps over the lazy dog."


def check_audio(socket: FakeSocket, text: str, number: int = 1, seed: int = 7) -> None:
    """Checks that packets are numbered without gap and hold exactly the PCM of the text."""
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


def test_utterance_is_started_spoken_and_done() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
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


def test_audio_does_not_depend_on_how_text_is_split() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.02)) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format={**PCM, "packet_ms": 20}, seed=3)
            for character in TEXT:
                socket.put(type="text", utterance="a", text=character)
                await asyncio.sleep(0.03)
            socket.put(type="end", utterance="a")
            await socket.until("done")
            check_audio(socket, TEXT, seed=3)

    run(scene())


def test_empty_fragment_does_not_start_the_time_to_first_audio() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="")
            await asyncio.sleep(1)
            socket.put(type="text", utterance="a", text=TEXT)
            socket.put(type="end", utterance="a")
            assert (await socket.until("done"))["ttfa_ms"] == 0
            check_audio(socket, TEXT)

    run(scene())


def test_utterances_of_one_socket_speak_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            texts = {f"u{i}": TEXT[i:] for i in range(4)}
            for name, text in texts.items():
                say(socket, name, text)
            await socket.until("done", 4)
            for number, text in enumerate(texts.values(), start=1):
                check_audio(socket, text, number)

    run(scene())


def test_messages_that_wait_together_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, handled_in, receive = 0, [], ServerSession.receive

    def noted(session: ServerSession, message: str | bytes, now_s: float) -> None:
        handled_in.append(turn)
        receive(session, message, now_s)

    async def count_turns() -> None:
        nonlocal turn
        while turn < 200:
            turn += 1
            await asyncio.sleep(0)

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            counting = asyncio.create_task(count_turns())
            for name in "abc":
                say(socket, name, TEXT)
            await counting

    monkeypatch.setattr(ServerSession, "receive", noted)
    run(scene())
    assert len(handled_in) >= 6
    assert len(set(handled_in)) == len(handled_in)


def test_a_frame_costs_one_effect_and_one_look_at_the_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def count(name: str) -> None:
        method = getattr(ServerSession, name)

        def counted(session: ServerSession, now_s: float) -> object:
            calls[name] += 1
            return method(session, now_s)

        monkeypatch.setattr(ServerSession, name, counted)

    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.02)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 10, pacing="none")
            frames = (await socket.until("done"))["frames"]
        for name, most in (("next_effect", 1.1), ("next_wake_s", 1.1)):
            assert frames <= calls[name] <= most * frames + 20, name

    for name in ("next_effect", "next_wake_s"):
        count(name)
    run(scene())


def note_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the times at which writers look for effects."""
    looks: list[float] = []
    next_effect = ServerSession.next_effect

    def noted(session: ServerSession, now_s: float) -> object:
        looks.append(now_s)
        return next_effect(session, now_s)

    monkeypatch.setattr(ServerSession, "next_effect", noted)
    return looks


def test_a_start_moves_the_timer_without_running_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = note_looks(monkeypatch)

    async def scene() -> None:
        async with InProcessGateway(text_idle_timeout_s=3) as gateway:
            socket = gateway.connect()
            await settle()
            before, now_s = len(looks), asyncio.get_running_loop().time()
            socket.put(type="start", utterance="a", format=PCM)
            await settle()
            assert len(looks) == before
            await socket.until("error")  # it has no text to be finished with
            assert asyncio.get_running_loop().time() - now_s == pytest.approx(3, abs=0.01)

    run(scene())


def test_no_timer_outlives_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the socket is lost, while the speech is read and closed."""
    timers: list[asyncio.TimerHandle] = []
    call_at = VirtualTimeLoop.call_at

    def noted(loop: VirtualTimeLoop, when: float, wake: Callable[..., object], *args: Any, **more: Any) -> object:
        timer = call_at(loop, when, wake, *args, **more)
        if getattr(wake, "__func__", None) is asyncio.Event.set:
            timers.append(timer)
        return timer

    async def scene(lost_s: float) -> None:
        async with InProcessGateway(ToneScript(frame_s=0.02, close_s=0.5)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(lost_s)
            socket.disconnect()
            await settle()
            now_s = asyncio.get_running_loop().time()
            assert not [timer for timer in timers if not timer.cancelled() and timer.when() > now_s]

    monkeypatch.setattr(VirtualTimeLoop, "call_at", noted)
    for step in range(60):
        timers.clear()
        run(scene(step * 0.007))
    assert timers


def test_message_without_effect_does_not_wake_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = note_looks(monkeypatch)

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            await settle()
            before = len(looks)
            for _ in range(20):
                socket.put(type="text", utterance="a", text=" ")  # nothing that can be spoken
                await settle()
            assert len(looks) - before <= 1

    run(scene())


@pytest.mark.parametrize("packet_ms", [80, 20])
def test_audio_is_sent_within_the_lead_and_never_late(packet_ms: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(send_ahead_ms=400, lookahead_ms=1000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, format={**PCM, "packet_ms": packet_ms})
            done = await socket.until("done")
            times_s = [t for t, m in zip(socket.times_s, socket.sent, strict=True) if isinstance(m, bytes)]
            for time_s, (header, _) in zip(times_s, socket.audio(), strict=True):
                ahead_ms = (header.pts + header.samples) / 24 - time_s * 1000
                assert ahead_ms <= 400 + 2
                assert header.pts / 24 >= time_s * 1000 - 2, "the packet is late"
            assert times_s[-1] * 1000 >= done["audio_ms"] - 400 - 2

    run(scene())


def test_generation_stays_within_the_lookahead() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=10), send_ahead_ms=400, lookahead_ms=1000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 4)
            while not socket.of("done"):
                await asyncio.sleep(0.05)
                speech = gateway.synthesizer.speeches[0]
                assert speech.made - speech.heard <= 10
            check_audio(socket, TEXT * 4)

    run(scene())


def test_underrun_is_credited_to_the_last_frame() -> None:
    """No other event wakes the session, but the scheduler has to learn that the client has played everything."""

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=TEXT[:20])
            await asyncio.sleep(5)
            speech = gateway.synthesizer.speeches[0]
            assert len(socket.audio(1)) == speech.heard == 10

    run(scene())


def test_unpaced_audio_is_sent_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 10, pacing="none")
            await socket.until("done")
            check_audio(socket, TEXT * 10)
            assert socket.times_s[-1] <= 0.01

    run(scene())


def test_word_times_are_sent_only_on_request() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, words=True)
            say(socket, "b", TEXT)
            await socket.until("done", 2)
            words = [w for m in socket.of("words") for w in m["words"]]
            assert " ".join(w["text"] for w in words) == TEXT
            assert all(TEXT[w["start"] : w["end"]] == w["text"] for w in words)
            assert {m["utterance"] for m in socket.of("words")} == {"a"}
            assert all(m["approximate"] is True for m in socket.of("words"))

    run(scene())


def test_speeches_with_immediate_audio_take_turns() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            for socket in (gateway.connect(), gateway.connect()):
                say(socket, "a", TEXT)
            made = [0, 0]
            while max(made) < 20:
                await asyncio.sleep(0)
                made = [speech.made for speech in gateway.synthesizer.speeches] or [0, 0]
                assert max(made) - min(made) <= 2

    run(scene())


def test_connection_lost_while_reads_wait_for_writes_releases_everything() -> None:
    """The writer ends while the reader waits for it to shorten the backlog."""

    async def scene() -> None:
        async with InProcessGateway(slots=2) as gateway:
            socket = gateway.connect()
            for name in "ab":
                say(socket, name, TEXT * 20, pacing="none")
            await socket.until("started", 2)
            socket.stop_reading()
            for number in range(100):
                socket.put(type="ping", id=str(number))
            await settle()
            assert gateway.sessions[0].backlog >= 64
            socket.disconnect()
            await settle()
            assert gateway.runs[0].done()
            assert gateway.admission.active == 0

    run(scene())


async def open_utterance(admission: AdmissionQueue, synthesizer: ToneSynthesizer) -> ServerUtterance:
    audio_format, request = OutputFormat("pcm"), SpeechRequest("ada")
    utterance = ServerUtterance(
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
    utterance.ticket = admission.enqueue(Caller("k", KeyLimits()), lambda _ticket, _now_s: None, 0.0)
    utterance.speech = synthesizer.open(request)
    return utterance


def test_ticket_is_released_when_the_engine_confirms() -> None:
    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        utterance = await open_utterance(admission, ToneSynthesizer(ToneScript(close_s=0.5)))
        reader = asyncio.create_task(asyncio.sleep(100))
        speech_closer.close(utterance, reader)
        await asyncio.sleep(0.4)
        assert reader.cancelled()
        assert (admission.active, speech_closer.closing) == (1, 1)
        await speech_closer.finish(1)
        assert (admission.active, speech_closer.closing) == (0, 0)

    run(scene())


def test_failed_close_releases_the_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: ToneSpeech) -> None:
        raise RuntimeError("scripted")

    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        utterance = await open_utterance(admission, ToneSynthesizer())
        monkeypatch.setattr(ToneSpeech, "aclose", fail)
        speech_closer.close(utterance, None)
        await speech_closer.finish(1)
        assert admission.active == 0

    run(scene())


def test_finish_waits_at_most_its_timeout() -> None:
    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        speech_closer.close(await open_utterance(admission, ToneSynthesizer(ToneScript(close_s=100))), None)
        await speech_closer.finish(2.0)
        assert asyncio.get_running_loop().time() == pytest.approx(2.0)
        assert admission.active == 1

    run(scene())


def test_ticket_is_released_when_a_speech_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        admission = AdmissionQueue(lambda: 1, 0, 0)
        speech_closer = SpeechCloser(admission)
        speech_closer.close(await open_utterance(admission, ToneSynthesizer(ToneScript(close_s=1000))), None)
        await asyncio.sleep(59)
        assert admission.active == 1
        await asyncio.sleep(2)
        assert (admission.active, speech_closer.closing) == (0, 0)

    run(scene())
    assert [record.getMessage() for record in caplog.records] == ["closing a speech failed"]
