"""The voice under test, through the project's own pipeline: the synthesizer that the gateway uses, in process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from voxgate.pipeline.qwen_voice import SynthesizerOptions
from voxgate.pipeline.speech import FinishReason, SamplingOptions, SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer

AT_ONCE = 12
"""Utterances spoken side by side: a step for twelve costs much less than twelve steps."""
_UNHURRIED = 10**6
"""Frames heard, where nobody listens in real time."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """`pcm`: float32 [n] at 24 kHz. `arrivals_s`: when each 80 ms of it were there, from the first text on."""

    pcm: NDArray[np.float32]
    ended: bool
    arrivals_s: list[float]


class Speaker:
    """Speaks up to `AT_ONCE` utterances side by side; further ones wait their turn."""

    def __init__(self, synthesizer: QwenSynthesizer, at_once: int) -> None:
        self._synthesizer = synthesizer
        self._turn = asyncio.Semaphore(at_once)

    @property
    def voices(self) -> list[str]:
        return list(self._synthesizer.voices)

    async def speak(
        self, voice: str, written: str, seed: int, sampling: SamplingOptions, words_per_s: float | None = None
    ) -> Utterance:
        """One utterance, its text at once, or a word at a time as `words_per_s` tells.

        Raises what `Synthesizer.open` and the iteration of `Speech` raise.
        """
        async with self._turn:
            listened_to = words_per_s is not None
            request = SpeechRequest(voice, sampling=sampling, seed=seed, paced=listened_to)
            speech = self._synthesizer.open(request)
            writing: asyncio.Task[None] | None = None
            try:
                began_s = time.monotonic()
                speech.advance(_UNHURRIED)
                if words_per_s is None:
                    speech.push_text(written)
                    speech.end()
                else:
                    writing = asyncio.create_task(_write(speech.push_text, speech.end, written, words_per_s))
                parts, arrivals_s = [], []
                async for chunk in speech:
                    parts.append(chunk.pcm)
                    arrivals_s += [time.monotonic() - began_s] * chunk.frames
                pcm = np.concatenate(parts) if parts else np.zeros(0, np.float32)
                return Utterance(pcm, speech.finish_reason is FinishReason.END, arrivals_s)
            finally:
                if writing is not None:
                    writing.cancel()
                await speech.aclose()


@asynccontextmanager
async def speaker(checkpoint: Path, at_once: int = AT_ONCE) -> AsyncIterator[Speaker]:
    """The checkpoint's voices, loaded; every process of theirs is gone afterwards."""
    synthesizer = QwenSynthesizer(checkpoint, SynthesizerOptions(slots=at_once))
    await synthesizer.start()
    try:
        yield Speaker(synthesizer, at_once)
    finally:
        await synthesizer.close()


async def _write(push: Callable[[str], None], end: Callable[[], None], written: str, words_per_s: float) -> None:
    """A word and its blank at a time, as a language model or a hand would write them; the end with the last word."""
    began_s = time.monotonic()
    words = written.split()
    for number, word in enumerate(words):
        await asyncio.sleep(max(0.0, began_s + number / words_per_s - time.monotonic()))
        push(word if number == len(words) - 1 else word + " ")
    end()
