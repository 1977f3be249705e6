"""The voice under test, through the project's own pipeline: the synthesizer that the gateway uses, in process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from voxgate.pipeline.qwen_voice import SynthesizerOptions
from voxgate.pipeline.speech import FinishReason, SamplingOptions, Speech, SpeechRequest, Synthesizer
from voxgate.pipeline.synthesizer import QwenSynthesizer

AT_ONCE = 12
"""Utterances spoken side by side: a step for twelve costs much less than twelve steps."""
_DEADLINE_S = 300.0
"""Of one utterance: ten sentences take half a minute, on a busy machine a few times that."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """`pcm`: float32 [n] at 24 kHz. `arrivals_s`: when each 80 ms of it were there, from the first text on."""

    pcm: NDArray[np.float32]
    ended: bool
    arrivals_s: list[float]


class Speaker:
    """Speaks up to `at_once` utterances side by side; further ones wait their turn."""

    def __init__(self, synthesizer: Synthesizer, at_once: int) -> None:
        self._synthesizer = synthesizer
        self._turn = asyncio.Semaphore(at_once)

    @property
    def voices(self) -> list[str]:
        return list(self._synthesizer.voices)

    async def speak(
        self, voice: str, written: str, seed: int, sampling: SamplingOptions, words_per_s: float = inf
    ) -> Utterance:
        """One utterance, its text at once, or a word at a time as `words_per_s` tells.

        Raises what `Synthesizer.open` and the iteration of `Speech` raise, and TimeoutError.
        """
        async with self._turn, asyncio.timeout(_DEADLINE_S):
            speech = self._synthesizer.open(SpeechRequest(voice, sampling=sampling, seed=seed, paced=words_per_s < inf))
            clock_s = asyncio.get_running_loop().time
            began_s = clock_s()
            writing = asyncio.create_task(_write(speech, written, words_per_s))
            try:
                parts, arrivals_s = [], []
                async for chunk in speech:
                    parts.append(chunk.pcm)
                    arrivals_s += [clock_s() - began_s] * chunk.frames
                    speech.advance(len(arrivals_s))
                pcm = np.concatenate(parts) if parts else np.zeros(0, np.float32)
                return Utterance(pcm, speech.finish_reason is FinishReason.END, arrivals_s)
            finally:
                writing.cancel()
                await speech.aclose()


async def _write(speech: Speech, written: str, words_per_s: float) -> None:
    """A word and its blank at a time, as a language model or a hand would write them; the end with the last word."""
    clock_s = asyncio.get_running_loop().time
    began_s = clock_s()
    for number, word in enumerate(re.findall(r"\S+\s*", written)):
        await asyncio.sleep(max(0.0, began_s + number / words_per_s - clock_s()))
        speech.push_text(word)
    speech.end()


@asynccontextmanager
async def speaker(checkpoint: Path, at_once: int = AT_ONCE) -> AsyncIterator[Speaker]:
    """The checkpoint's voices, loaded; every process of theirs is gone afterwards."""
    synthesizer = QwenSynthesizer(checkpoint, SynthesizerOptions(slots=at_once))
    await synthesizer.start()
    try:
        yield Speaker(synthesizer, at_once)
    finally:
        await synthesizer.close()
