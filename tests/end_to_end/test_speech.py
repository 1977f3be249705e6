"""The whole gateway with the real voice, through a real socket: what arrives is what is said offline."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio
from fakes.waiting import DEADLINE_S, until
from voxgate.client import AudioFormat, SpeechError, connect
from voxgate.client.events import Audio, Done, Words
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.opus import OpusDecoder
from voxgate.codecs.pcm import encode_s16le
from voxgate.gateway.server import Gateway, serve_until_signal
from voxgate.gateway.settings import Settings
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TEXT = "Hello! It is 3:15 now, and it costs $4.50. "
LONG = (
    "The bakery on the corner sells fresh bread every morning, and the coffee is very good. "
    "I found three restaurants near your hotel that are still open. "
    "Please take a seat, and the doctor will see you in ten minutes. "
)
UNHURRIED = 10**6
"""Frames heard, for speech that nobody listens to in real time."""


@dataclass
class EndToEndGateway:
    """A gateway and the voice in it, with speech by both ways: through a socket, and straight from the pipeline."""

    url: str
    synthesizer: QwenSynthesizer
    _offline: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    async def offline(self, text: str, seed: int) -> np.ndarray:
        """All at once, float32 at 24 kHz."""
        if (text, seed) not in self._offline:
            speech = self.synthesizer.open(SpeechRequest(self.synthesizer.default_voice, seed=seed))
            speech.advance(UNHURRIED)
            speech.push_text(text)
            speech.end()
            self._offline[text, seed] = np.concatenate([chunk.pcm async for chunk in speech])
            await speech.aclose()
        return self._offline[text, seed]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EndToEndGateway]:
    folder = Path(str(files("voxgate.voices"))) / "demo"
    synthesizer = QwenSynthesizer(folder, SynthesizerOptions(slots=4))
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    settings = Settings(port=0, queue_wait_ms=20_000, starts_per_s=1000)
    serving = asyncio.create_task(
        serve_until_signal(Gateway(settings, synthesizer, PacketEncoder), listening.set_result)
    )
    await asyncio.wait([listening, serving], return_when=asyncio.FIRST_COMPLETED)
    async with asyncio.timeout(180):
        while synthesizer.state != "ready" and not serving.done():
            await asyncio.sleep(0.1)
    yield EndToEndGateway(f"ws://127.0.0.1:{listening.result()}", synthesizer)
    # The interpreter's own resource tracker ends with the interpreter.
    family = [p for p in psutil.Process().children(recursive=True) if "resource_tracker" not in command_line(p)]
    serving.cancel()
    await asyncio.wait([serving])
    _, left = psutil.wait_procs(family, timeout=10)
    assert not left


def command_line(process: psutil.Process) -> str:
    """Empty for one that has ended but was not waited for yet."""
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return ""


async def by_character(utterance, text: str) -> None:
    for character in text:
        await utterance.send(character)
    await utterance.end()


async def whole(utterance, text: str) -> None:
    await utterance.send(text)
    await utterance.end()


async def say(running: EndToEndGateway, text: str, seed: int, feed=whole, **options) -> tuple[list[Audio], list, Done]:
    """One utterance on a socket of its own, as fast as it is made: audio messages, other events, the last one."""
    async with connect(running.url) as session, session.utterance(seed=seed, pacing="none", **options) as utterance:
        feeding = asyncio.create_task(feed(utterance, text))
        async with asyncio.timeout(120):
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
    """To the last bit but one: the codec's batches differ, and with them the order of float additions."""
    offline = np.frombuffer(encode_s16le(expected), "<i2").astype(np.int32)
    return pcm.shape == offline.shape and int(np.abs(pcm - offline).max()) <= 1


@pytest.mark.parametrize("feed", [whole, by_character])
async def test_a_socket_carries_exactly_what_is_said_offline(running: EndToEndGateway, feed) -> None:
    audio, _, done = await say(running, TEXT, seed=7, feed=feed)
    assert nearly_equal(samples(audio), await running.offline(TEXT, 7))
    assert done.samples == len(samples(audio)) == done.frames * 1920
    assert done.characters == len(TEXT)
    assert done.reason == "end"


async def test_company_changes_nothing(running: EndToEndGateway) -> None:
    """More utterances than talker slots: the rest wait their turn, and all are as if alone."""
    texts = [(TEXT, 7), ("Good morning.", 1), ("How can I help you?", 2), (TEXT, 8), ("Yes.", 3), ("No!", 4)]
    spoken = await asyncio.gather(*(say(running, text, seed) for text, seed in texts))
    for (text, seed), (audio, _, _) in zip(texts, spoken, strict=True):
        assert nearly_equal(samples(audio), await running.offline(text, seed))


async def test_opus_decodes_to_the_same_length_and_sounds_the_same(running: EndToEndGateway) -> None:
    format = AudioFormat(codec="opus", bitrate=96_000)
    async with connect(running.url) as session, session.utterance(seed=7, pacing="none", format=format) as utterance:
        await whole(utterance, TEXT)
        packets = [audio.payload async for audio in utterance.audio() if audio.samples]
        pre_skip, done = utterance.format.pre_skip, utterance.done
    decoder = OpusDecoder(24_000)
    pcm = np.concatenate([decoder.decode(packet) for packet in packets])[pre_skip : pre_skip + done.samples]
    offline = await running.offline(TEXT, 7)
    assert len(pcm) == len(offline)
    assert np.corrcoef(pcm, offline)[0, 1] > 0.98


@pytest.mark.parametrize("rate", [8000, 44_100, 48_000])
async def test_other_rates_keep_the_length_to_the_sample(running: EndToEndGateway, rate: int) -> None:
    audio, _, done = await say(running, TEXT, seed=7, format=AudioFormat(sample_rate=rate))
    assert len(samples(audio)) == done.samples == round(len(await running.offline(TEXT, 7)) * rate / 24_000)


async def test_a_long_text_is_spoken_over_several_breaths_without_a_seam_in_the_numbers(
    running: EndToEndGateway,
) -> None:
    long = LONG * 4
    audio, _, done = await say(running, long, seed=5, feed=by_character)
    assert nearly_equal(samples(audio), await running.offline(long, 5))
    assert done.audio_ms > 36_000


async def test_flush_speaks_before_more_text_comes(running: EndToEndGateway) -> None:
    async with connect(running.url) as session, session.utterance(seed=1, pacing="none") as utterance:
        await utterance.send("Good morning")
        await utterance.flush()
        heard = 0
        async with asyncio.timeout(DEADLINE_S):
            async for audio in utterance.audio():
                heard += audio.samples
                if heard > 24_000 // 2:
                    break
            await utterance.send("and good night.")
            await utterance.end()
            heard += sum([audio.samples async for audio in utterance.audio()])
    assert heard == utterance.done.samples
    assert utterance.done.reason == "end"


async def test_word_times_cover_the_text_in_order(running: EndToEndGateway) -> None:
    _, events, done = await say(running, LONG, seed=5, words=True)
    words = [word for event in events if isinstance(event, Words) for word in event.words]
    assert [word.text for word in words] == LONG.split()
    assert all(LONG[word.start : word.end] == word.text for word in words)
    times = [time for word in words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[-1] <= done.audio_ms


async def test_an_interrupt_tells_what_was_heard_and_frees_the_slot(running: EndToEndGateway) -> None:
    async with connect(running.url) as session, session.utterance(seed=5) as utterance:
        await whole(utterance, LONG)
        heard = 0
        async for audio in utterance.audio():
            heard += audio.samples
            if heard >= 24_000:
                break
        answer = await utterance.interrupt(played_ms=900)
        assert answer.text_spoken + answer.text_remaining == LONG
        assert 0 < len(answer.text_spoken) < 60
    await until(lambda: running.synthesizer.free_slots == running.synthesizer.slots)


async def test_bad_requests_get_their_error_and_the_session_lives(running: EndToEndGateway) -> None:
    async with connect(running.url) as session:
        for options, code in (
            ({"voice": "nobody"}, "unknown_voice"),
            ({"language": "klingon"}, "unknown_language"),
            ({"format": AudioFormat(sample_rate=12_345)}, "unsupported_format"),
            ({"instructions": "Whisper."}, "unsupported_option"),
        ):
            async with session.utterance(**options) as utterance:
                with pytest.raises(SpeechError) as refused:
                    async for _ in utterance.events():
                        pass
                assert refused.value.code == code
        async with session.utterance() as utterance:
            await utterance.send(" \u2603 ")
            await utterance.end()
            with pytest.raises(SpeechError) as refused:
                async for _ in utterance.events():
                    pass
            assert refused.value.code == "empty_text"
        async with session.utterance(pacing="none") as utterance:
            await whole(utterance, "Still here.")
            assert sum([audio.samples async for audio in utterance.audio()]) > 0


async def test_an_utterance_outlives_a_client_that_vanishes(running: EndToEndGateway) -> None:
    """The client is gone in mid-speech; its slot comes back."""
    async with connect(running.url) as session, session.utterance(seed=5) as utterance:
        await whole(utterance, LONG)
        async for _ in utterance.audio():
            session._socket.transport.abort()
            break
    await until(lambda: running.synthesizer.free_slots == running.synthesizer.slots)


async def signal_engine_while_listening(utterance, number: signal.Signals) -> None:
    engine = next(child for child in psutil.Process().children() if "EngineCore" in command_line(child))
    async for _ in utterance.audio():
        engine.send_signal(number)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_an_engine_that_hangs_or_dies_is_told_and_rebuilt(
    running: EndToEndGateway, number: signal.Signals
) -> None:
    """Last in this file: it costs further starts."""
    async with connect(running.url) as session:
        async with session.utterance(seed=5) as utterance:
            await whole(utterance, LONG)
            with pytest.raises(SpeechError) as lost:
                await signal_engine_while_listening(utterance, number)
            assert lost.value.code == "engine_lost"
            assert lost.value.retryable
        async with asyncio.timeout(120):
            while running.synthesizer.state == "ready":
                await asyncio.sleep(0.1)
            while running.synthesizer.state != "ready":
                await asyncio.sleep(0.1)
        async with session.utterance(seed=7, pacing="none") as utterance:
            await whole(utterance, TEXT)
            audio = [message async for message in utterance.audio()]
    assert nearly_equal(samples(audio), await running.offline(TEXT, 7))
