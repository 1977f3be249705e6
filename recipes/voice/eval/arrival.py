"""Text that arrives word by word: speaking rate of the voice, and interruptions of playback."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from voxgate.codecs.pcm import SAMPLE_RATE_HZ
from voxgate.pipeline.interface import SamplingOptions

from . import plan as texts
from .figures import FRAME_S
from .judging.sound import speech_extent
from .plan import EvaluationText
from .session import Speaker, SynthesizedUtterance

WORDS_PER_S = (3.0, 6.0, 12.0)
_CONCURRENT = 2
"""Few, so that waiting for text is not confused with a slow machine."""


@dataclass(frozen=True, slots=True)
class ArrivalFigures:
    """Figures at one rate of arriving text.

    `speech_words_per_s`: words per second from the first sound to the last; `heard_words_per_s`: including the waits
    of a player without buffer. `waits`, `wait_s`: number and duration of its underruns per utterance.
    """

    words_per_s: float
    utterances: int
    speech_words_per_s: float
    pauses: float
    """Share of pauses in the speech."""
    heard_words_per_s: float
    waits: float
    wait_s: float
    first_sound_s: float


def long_lines(count: int) -> list[EvaluationText]:
    """Sentences of at least ten words, in which the rate of arrival has an effect."""
    return [line for line in texts.load(texts.SENTENCES) if len(line.words) >= 10][::3][:count]


async def measure(
    speaker: Speaker, voices: Sequence[str], sampling: SamplingOptions, count: int
) -> list[ArrivalFigures]:
    """Measure `count` sentences at each rate in real time; voices alternate."""
    turn = asyncio.Semaphore(_CONCURRENT)
    lines = long_lines(count)

    async def one(number: int, line: EvaluationText, pace: float) -> SynthesizedUtterance:
        async with turn:
            return await speaker.speak(voices[number % len(voices)], line.written, 0, sampling, pace)

    rows = []
    for pace in WORDS_PER_S:
        spoken = await asyncio.gather(*(one(number, line, pace) for number, line in enumerate(lines)))
        rows.append(figures(pace, lines, spoken))
    return rows


def figures(
    words_per_s: float, lines: Sequence[EvaluationText], spoken: Sequence[SynthesizedUtterance]
) -> ArrivalFigures:
    """Figures of utterances of `lines` at one rate."""
    extents = [speech_extent(utterance.pcm) for utterance in spoken]
    waits = [waits_s(utterance.arrivals_s) for utterance in spoken]
    words, speech_s = sum(len(line.words) for line in lines), sum(extent.speech_s for extent in extents)
    waited_s = sum(map(sum, waits))
    return ArrivalFigures(
        words_per_s=words_per_s,
        utterances=len(lines),
        speech_words_per_s=words / speech_s,
        pauses=sum(extent.pauses_s for extent in extents) / speech_s,
        heard_words_per_s=words / (speech_s + waited_s),
        waits=sum(map(len, waits)) / len(lines),
        wait_s=waited_s / len(lines),
        first_sound_s=sum(
            utterance.arrivals_s[
                min(int(extent.leading_silence_s / FRAME_S), len(utterance.pcm) * 12 // SAMPLE_RATE_HZ)
            ]
            for utterance, extent in zip(spoken, extents, strict=True)
        )
        / len(lines),
    )


def waits_s(arrivals_s: Sequence[float]) -> list[float]:
    """Durations of the underruns when playback starts with the first frame; less than 10 ms does not count."""
    waits = []
    free_s = arrivals_s[0] if arrivals_s else 0.0
    for arrived_s in arrivals_s:
        if arrived_s > free_s + 0.01:
            waits.append(arrived_s - free_s)
        free_s = max(free_s, arrived_s) + FRAME_S
    return waits
