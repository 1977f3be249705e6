"""The gateway with the real voice, through a real socket: the audio equals that of the pipeline without a gateway."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio
from fakes.waiting import DEADLINE_S, until
from voxgate.client import AudioFormat, SpeechError, connect
from voxgate.client.events import Audio, Done, Words
from voxgate.client.utterance import Utterance
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.opus import OpusDecoder
from voxgate.codecs.pcm import encode_s16le
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from voxgate.pipeline.interface import EngineState, SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

from .serving import ENGINE_START_S, serving

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TEXT = "Hello! It is 3:15 now, and it costs $4.50. "
LONG = (
    "The bakery on the corner sells fresh bread every morning, and the coffee is very good. "
    "I found three restaurants near your hotel that are still open. "
    "Please take a seat, and the doctor will see you in ten minutes. "
)
UNPACED_FRAMES = 10**6
"""Credit for speech that is not played in real time."""

Feed = Callable[[Utterance, str], Awaitable[None]]


@dataclass
class EndToEndGateway:
    """A gateway and its synthesizer, so that speech can be had with and without the gateway."""

    url: str
    synthesizer: QwenSynthesizer
    _offline: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    async def offline(self, text: str, seed: int) -> np.ndarray:
        """The whole utterance from the pipeline, float32 at 24 kHz."""
        if (text, seed) not in self._offline:
            request = SpeechRequest(self.synthesizer.default_voice, seed=seed, trim_silence=True)  # as sockets have it
            speech = self.synthesizer.open(request)
            speech.advance(UNPACED_FRAMES)
            speech.push_text(text)
            speech.end()
            self._offline[text, seed] = np.concatenate([chunk.pcm async for chunk in speech])
            await speech.aclose()
        return self._offline[text, seed]

    async def until_slots_are_free(self) -> None:
        await until(lambda: self.synthesizer.free_slots == self.synthesizer.slots)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[EndToEndGateway]:
    folder = Path(str(files("voxgate.voices"))) / "demo"
    synthesizer = QwenSynthesizer(folder, SynthesizerOptions(slots=4))
    settings = Settings(port=0, queue_wait_ms=20_000, starts_per_s=1000, engine_loss_timeout_s=ENGINE_START_S)
    async with serving(Gateway(settings, synthesizer, PacketEncoder), synthesizer) as port:
        yield EndToEndGateway(f"ws://127.0.0.1:{port}", synthesizer)
        # The interpreter's own resource tracker ends with the interpreter.
        processes = [p for p in psutil.Process().children(recursive=True) if "resource_tracker" not in command_line(p)]
    _, left = psutil.wait_procs(processes, timeout=DEADLINE_S)
    assert not left


def command_line(process: psutil.Process) -> str:
    """Empty for a process that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return ""


async def by_character(utterance: Utterance, text: str) -> None:
    for character in text:
        await utterance.send(character)
    await utterance.end()


async def at_once(utterance: Utterance, text: str) -> None:
    await utterance.send(text)
    await utterance.end()


async def synthesize(
    gateway: EndToEndGateway, text: str, seed: int, feed: Feed = at_once, **options: Any
) -> tuple[list[Audio], list[Any], Done]:
    """One unpaced utterance on a socket of its own. Returns audio messages, all events, and the last event."""
    async with connect(gateway.url) as session, session.utterance(seed=seed, pacing="none", **options) as utterance:
        feeding = asyncio.create_task(feed(utterance, text))
        async with asyncio.timeout(2 * DEADLINE_S):
            events = [event async for event in utterance.events()]
        await feeding
    audio = [event for event in events if isinstance(event, Audio)]
    assert [message.seq for message in audio] == list(range(len(audio)))
    assert [message.pts for message in audio] == list(np.cumsum([0, *(message.samples for message in audio)])[:-1])
    assert [message.last for message in audio] == [False] * (len(audio) - 1) + [True]
    assert isinstance(events[-1], Done)
    return audio, events, events[-1]


def samples(audio: list[Audio]) -> np.ndarray:
    return np.frombuffer(b"".join(message.payload for message in audio), "<i2").astype(np.int32)


def nearly_equal(pcm: np.ndarray, expected: np.ndarray) -> bool:
    """Whether the samples differ by one step at most: the codec's batches differ, and with them the rounding."""
    offline = np.frombuffer(encode_s16le(expected), "<i2").astype(np.int32)
    return pcm.shape == offline.shape and int(np.abs(pcm - offline).max()) <= 1


@pytest.mark.parametrize("feed", [at_once, by_character])
async def test_socket_carries_the_offline_audio(gateway: EndToEndGateway, feed: Feed) -> None:
    audio, _, done = await synthesize(gateway, TEXT, seed=7, feed=feed)
    assert nearly_equal(samples(audio), await gateway.offline(TEXT, 7))
    assert done.samples == len(samples(audio)) == done.frames * 1920
    assert done.characters == len(TEXT)
    assert done.reason == "end"


async def test_concurrent_utterances_equal_the_offline_audio(gateway: EndToEndGateway) -> None:
    """More utterances than talker slots: the rest wait in the queue."""
    texts = [(TEXT, 7), ("Good morning.", 1), ("How can I help you?", 2), (TEXT, 8), ("Yes.", 3), ("No!", 4)]
    spoken = await asyncio.gather(*(synthesize(gateway, text, seed) for text, seed in texts))
    for (text, seed), (audio, _, _) in zip(texts, spoken, strict=True):
        assert nearly_equal(samples(audio), await gateway.offline(text, seed))


async def test_opus_has_the_length_and_the_sound_of_the_offline_audio(gateway: EndToEndGateway) -> None:
    format = AudioFormat(codec="opus", bitrate=96_000)
    async with connect(gateway.url) as session, session.utterance(seed=7, pacing="none", format=format) as utterance:
        await at_once(utterance, TEXT)
        packets = [audio.payload async for audio in utterance.audio() if audio.samples]
        pre_skip, done = utterance.format.pre_skip, utterance.done
    assert done is not None
    decoder = OpusDecoder(24_000)
    pcm = np.concatenate([decoder.decode(packet) for packet in packets])[pre_skip : pre_skip + done.samples]
    offline = await gateway.offline(TEXT, 7)
    assert len(pcm) == len(offline)
    assert np.corrcoef(pcm, offline)[0, 1] > 0.98


@pytest.mark.parametrize("rate_hz", [8000, 44_100, 48_000])
async def test_other_sample_rates_keep_the_length(gateway: EndToEndGateway, rate_hz: int) -> None:
    audio, _, done = await synthesize(gateway, TEXT, seed=7, format=AudioFormat(sample_rate=rate_hz))
    assert len(samples(audio)) == done.samples == round(len(await gateway.offline(TEXT, 7)) * rate_hz / 24_000)


async def test_text_of_several_generations_has_gapless_numbers(gateway: EndToEndGateway) -> None:
    text = LONG * 2
    audio, _, done = await synthesize(gateway, text, seed=5, feed=by_character)
    assert nearly_equal(samples(audio), await gateway.offline(text, 5))
    assert done.audio_ms > 18_000


async def test_flush_starts_speech_before_the_text_ends(gateway: EndToEndGateway) -> None:
    async with connect(gateway.url) as session, session.utterance(seed=1, pacing="none") as utterance:
        await utterance.send("Good morning")
        await utterance.flush()
        received = 0
        async with asyncio.timeout(DEADLINE_S):
            async for audio in utterance.audio():
                received += audio.samples
                if received > 24_000 // 2:
                    break
            await utterance.send("and good night.")
            await utterance.end()
            received += sum([audio.samples async for audio in utterance.audio()])
    assert utterance.done is not None
    assert received == utterance.done.samples
    assert utterance.done.reason == "end"


async def test_word_times_cover_the_text_in_order(gateway: EndToEndGateway) -> None:
    _, events, done = await synthesize(gateway, LONG, seed=5, words=True)
    words = [word for event in events if isinstance(event, Words) for word in event.words]
    assert [word.text for word in words] == LONG.split()
    assert all(LONG[word.start : word.end] == word.text for word in words)
    times = [time for word in words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[-1] <= done.audio_ms


@pytest.mark.parametrize("rate", [0.8, 1.25])
async def test_rate_is_that_of_audio_and_word_times(gateway: EndToEndGateway, rate: float) -> None:
    spoken = [await synthesize(gateway, TEXT, seed=7, words=True, rate=each) for each in (1.0, rate)]
    own, other = (
        [word for event in events if isinstance(event, Words) for word in event.words] for _, events, _ in spoken
    )
    (_, _, own_done), (audio, _, done) = spoken
    assert (done.frames, done.samples) == (own_done.frames, round(own_done.samples / rate))
    assert len(samples(audio)) == done.samples
    assert [word.text for word in other] == [word.text for word in own]
    for after, before in zip(other, own, strict=True):
        assert after.start_ms == pytest.approx(before.start_ms / rate, abs=1)
        assert after.end_ms == pytest.approx(before.end_ms / rate, abs=1)


async def test_markup_changes_the_rate_of_a_sentence(gateway: EndToEndGateway) -> None:
    lengths = []
    for rate in (99.9, 50):  # with 100 there would be one generation
        text = f'Good morning. <prosody rate="{rate}%">How can I help you?</prosody> Goodbye.'
        _, events, done = await synthesize(gateway, text, seed=3, words=True)
        words = {word.text: word for event in events if isinstance(event, Words) for word in event.words}
        lengths.append((done.samples, words["How"].start_ms, words["Goodbye."].start_ms))
    (plain, plain_how_ms, plain_goodbye_ms), (slow, slow_how_ms, slow_goodbye_ms) = lengths
    added_ms = (slow - plain) / 24
    assert added_ms > 500
    assert slow_how_ms - plain_how_ms < added_ms / 2
    assert slow_goodbye_ms - plain_goodbye_ms == pytest.approx(added_ms, abs=2)


async def test_interrupt_reports_the_spoken_text_and_frees_the_slot(gateway: EndToEndGateway) -> None:
    async with connect(gateway.url) as session, session.utterance(seed=5) as utterance:
        await at_once(utterance, LONG)
        received = 0
        async for audio in utterance.audio():
            received += audio.samples
            if received >= 24_000:
                break
        answer = await utterance.interrupt(played_ms=900)
        assert answer.text_spoken + answer.text_remaining == LONG
        assert 0 < len(answer.text_spoken) < 60
    await gateway.until_slots_are_free()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"voice": "unheard-of"}, "unknown_voice"),
        ({"language": "klingon"}, "unknown_language"),
        ({"format": AudioFormat(sample_rate=12_345)}, "unsupported_format"),
        ({"instructions": "Whisper."}, "unsupported_option"),
    ],
)
async def test_refused_options_leave_the_session_usable(
    gateway: EndToEndGateway, options: dict[str, Any], code: str
) -> None:
    async with connect(gateway.url) as session:
        async with session.utterance(**options) as utterance:
            assert await error_of(utterance) == code
        async with session.utterance(pacing="none") as utterance:
            await at_once(utterance, "Still here.")
            assert sum([audio.samples async for audio in utterance.audio()]) > 0


async def test_text_without_words_is_refused(gateway: EndToEndGateway) -> None:
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await at_once(utterance, " \u2603 ")
        assert await error_of(utterance) == "empty_text"


async def error_of(utterance: Utterance) -> str:
    with pytest.raises(SpeechError) as refused:
        async for _ in utterance.events():
            pass
    return refused.value.code


async def test_lost_connection_frees_the_slot(gateway: EndToEndGateway) -> None:
    async with connect(gateway.url, resume=False) as session, session.utterance(seed=5) as utterance:
        await at_once(utterance, LONG)
        async for _ in utterance.audio():
            assert gateway.synthesizer.free_slots < gateway.synthesizer.slots
            session.transport.abort()
            break
    await gateway.until_slots_are_free()
    assert gateway.synthesizer.state is EngineState.READY


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.nightly)])
async def test_utterance_goes_on_after_the_loss_of_the_engine(gateway: EndToEndGateway, number: signal.Signals) -> None:
    """Stands last in this file: each case restarts the engine."""
    async with connect(gateway.url) as session:
        async with session.utterance(seed=5) as utterance:
            await at_once(utterance, LONG)
            audio = await signal_engine_while_listening(utterance, number)
        assert nearly_equal(samples(audio), await gateway.offline(LONG, 5))
        async with session.utterance(seed=7, pacing="none") as utterance:
            await at_once(utterance, TEXT)
            audio = [message async for message in utterance.audio()]
    assert nearly_equal(samples(audio), await gateway.offline(TEXT, 7))


async def signal_engine_while_listening(utterance: Utterance, number: signal.Signals) -> list[Audio]:
    """Sends the signal with the first audio; returns all of it."""
    engine, audio = engine_process(), []
    async for message in utterance.audio():
        audio.append(message)
        if len(audio) == 1:
            engine.send_signal(number)
    return audio


def engine_process() -> psutil.Process:
    return next(child for child in psutil.Process().children() if "EngineCore" in command_line(child))
