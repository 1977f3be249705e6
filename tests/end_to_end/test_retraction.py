"""Text is taken back from the real voice: what was sent stays, and speech goes on with what replaces the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from fakes.waiting import DEADLINE_S
from voxgate.client import Audio, Done, Retracted, Word, Words, connect
from voxgate.client.utterance import Utterance
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.pcm import FRAME_SAMPLES, encode_s16le
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

from .serving import serving

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TEXT = "The bakery on the corner sells fresh bread every morning, and the coffee there is really very good. "
OTHER = "No, sorry, it is closed on Mondays. "
UNPACED_FRAMES = 10**6
SEED = 11


class Served:
    def __init__(self, url: str, synthesizer: QwenSynthesizer) -> None:
        self.url, self.synthesizer = url, synthesizer
        self.requests: list[SpeechRequest] = []
        """Those of all speeches."""
        opened = synthesizer.open

        def open_recorded(request: SpeechRequest, place: Any = None) -> Any:
            self.requests.append(request)
            return opened(request, place)

        synthesizer.open = open_recorded  # type: ignore[method-assign]  # recorded

    async def speech(self, request: SpeechRequest, *pieces: str | None) -> np.ndarray:
        """The whole speech of a request, int32 at 24 kHz."""
        speech = self.synthesizer.open(replace(request, paced=False))
        speech.advance(UNPACED_FRAMES)
        for piece in pieces:
            if piece is None:
                speech.flush()
            else:
                speech.push_text(piece)
        speech.end()
        pcm = np.concatenate([chunk.pcm async for chunk in speech])
        await speech.aclose()
        return np.frombuffer(encode_s16le(pcm), "<i2").astype(np.int32)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    folder = Path(str(files("voxgate.voices"))) / "demo"
    synthesizer = QwenSynthesizer(folder, SynthesizerOptions(slots=2))
    gateway = Gateway(Settings(port=0, starts_per_s=1000), synthesizer, PacketEncoder)
    async with serving(gateway, synthesizer) as port:
        yield Served(f"ws://127.0.0.1:{port}", synthesizer)


def alike(pcm: np.ndarray, expected: np.ndarray) -> bool:
    """Whether the samples differ by one step at most: the codec's batches differ, and with them the rounding."""
    return pcm.shape == expected.shape and int(np.abs(pcm - expected).max(initial=0)) <= 1


@pytest.mark.parametrize("words", [True, False])
async def test_the_voice_goes_on_with_other_text(served: Served, words: bool) -> None:
    audio = bytearray()
    told: list[Word] = []
    answers: list[Retracted] = []
    async with asyncio.timeout(2 * DEADLINE_S):
        async with connect(served.url) as session, session.utterance(seed=SEED, words=words) as utterance:
            await utterance.send(TEXT)
            await utterance.end()

            async def change_its_mind() -> None:
                answers.append(await utterance.retract())
                await utterance.send(OTHER)
                await utterance.end()

            changing: asyncio.Task[None] | None = None
            sent_before = done = None
            async for event in utterance.events():
                match event:
                    case Audio():
                        audio += event.payload
                        if len(audio) >= 2 * 12 * FRAME_SAMPLES and changing is None:
                            changing = asyncio.create_task(change_its_mind())
                    case Words():
                        told += event.words
                    case Retracted():
                        sent_before = len(audio) // 2
                        told = [word for word in told if word.start < event.void_from]
                    case Done():
                        done = event
            assert changing is not None
            await changing
    (answer,) = answers
    assert done is not None
    assert sent_before is not None
    assert answer.samples is not None
    kept = TEXT[: answer.characters]
    assert sent_before <= answer.samples < sent_before + 24_000
    assert answer.flush_at == answer.characters
    assert answer.text == TEXT[answer.characters :]
    assert 0 < len(kept) < len(TEXT) // 2
    assert kept.endswith(" ")
    pcm = np.frombuffer(bytes(audio), "<i2").astype(np.int32)
    undisturbed, restored = served.requests[-2:]
    whole = await served.speech(undisturbed, TEXT)
    assert alike(pcm[: answer.samples], whole[: answer.samples])
    assert alike(pcm, await served.speech(restored, kept, None, OTHER))
    # What follows the cut is as long as the other text is when it is spoken alone.
    alone = await served.speech(replace(undisturbed, past=()), OTHER)
    assert 0.6 < (len(pcm) - answer.samples) / len(alone) < 1.6
    assert done.characters == len(kept + OTHER)
    if words:
        assert [word.text for word in told] == (kept + OTHER).split()
        times = [time for word in told for time in (word.start_ms, word.end_ms)]
        assert times == sorted(times)
        first = next(word for word in told if word.start >= len(kept))
        assert first.start_ms >= answer.samples // 24 - 80


async def say_otherwise(utterance: Utterance) -> None:
    await utterance.retract()
    await utterance.send(OTHER)


@pytest.mark.parametrize("spoken_s", [2, 10, 20])
async def test_how_long_the_kept_speech_takes(
    served: Served, spoken_s: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints, with `-s`, when audio behind the cut comes, and how long the listener hears nothing before it."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(2 * DEADLINE_S):
        async with connect(served.url) as session, session.utterance(seed=SEED) as utterance:
            await utterance.send(TEXT * (1 + spoken_s // 4))
            await utterance.flush()
            asked_s = answered_s = first_s = played_out_s = 0.0
            cut = samples = 0
            changing: asyncio.Task[None] | None = None
            async for event in utterance.events():
                if isinstance(event, Audio):
                    played_out_s = max(played_out_s, loop.time()) + event.samples / 24_000
                    samples += event.samples
                    if changing is None and samples >= spoken_s * 24_000:
                        asked_s, changing = loop.time(), asyncio.create_task(say_otherwise(utterance))
                    if cut and samples > cut:
                        first_s = loop.time()
                        break
                    silent_from_s = played_out_s
                elif isinstance(event, Retracted):
                    assert event.samples is not None
                    answered_s, cut = loop.time(), event.samples
            assert changing is not None
            await changing
    assert first_s >= answered_s >= asked_s > 0
    with capsys.disabled():
        print(
            f"\n{spoken_s} s spoken: answered after {answered_s - asked_s:.2f} s, other audio after "
            f"{first_s - asked_s:.2f} s, silence {max(0.0, first_s - silent_from_s):.2f} s"
        )
