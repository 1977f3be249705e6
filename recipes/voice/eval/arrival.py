"""Text that arrives word by word: how fast the voice then speaks, and where a listener has to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from voxgate.codecs.pcm import SAMPLE_RATE_HZ
from voxgate.pipeline.interface import SamplingOptions

from . import texts
from .figures import FRAME_S
from .session import Speaker, SynthesizedUtterance
from .sound import shape
from .texts import EvaluationText

WORDS_PER_S = (3.0, 6.0, 12.0)
_AT_ONCE = 2
"""Few: that a voice waits for its text must not be told from a machine that is slow."""


@dataclass(frozen=True, slots=True)
class ArrivalFigures:
    """`in_sound`: words a second from the first sound to the last, as it was made. `heard`: with the listener's waits.

    `waits`: how often in an utterance a listener who begins at once, without a buffer, runs dry; `wait_s`: how long.
    """

    words_per_s: float
    utterances: int
    in_sound: float
    pauses: float
    """Share of the sound that is pause."""
    heard: float
    waits: float
    wait_s: float
    first_sound_s: float


def long_lines(count: int) -> list[EvaluationText]:
    """Sentences in which the pace of arrival can make itself felt: of ten words and more."""
    return [line for line in texts.load(texts.SENTENCES) if len(line.words) >= 10][::3][:count]


async def measure(
    speaker: Speaker, voices: Sequence[str], sampling: SamplingOptions, count: int
) -> list[ArrivalFigures]:
    """In real time: `count` sentences at each pace, their voices in turn."""
    turn = asyncio.Semaphore(_AT_ONCE)
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
    forms = [shape(utterance.pcm) for utterance in spoken]
    waits = [waits_s(utterance.arrivals_s) for utterance in spoken]
    words, span_s = sum(len(line.words) for line in lines), sum(form.span_s for form in forms)
    waited_s = sum(map(sum, waits))
    return ArrivalFigures(
        words_per_s=words_per_s,
        utterances=len(lines),
        in_sound=words / span_s,
        pauses=sum(form.pauses_s for form in forms) / span_s,
        heard=words / (span_s + waited_s),
        waits=sum(map(len, waits)) / len(lines),
        wait_s=waited_s / len(lines),
        first_sound_s=sum(
            utterance.arrivals_s[min(int(form.lead_s / FRAME_S), len(utterance.pcm) * 12 // SAMPLE_RATE_HZ)]
            for utterance, form in zip(spoken, forms, strict=True)
        )
        / len(lines),
    )


def waits_s(arrivals_s: Sequence[float]) -> list[float]:
    """Where playing from the first frame on runs dry, and for how long; a wait of a hundredth of a second is none."""
    waits = []
    free_s = arrivals_s[0] if arrivals_s else 0.0
    for arrived_s in arrivals_s:
        if arrived_s > free_s + 0.01:
            waits.append(arrived_s - free_s)
        free_s = max(free_s, arrived_s) + FRAME_S
    return waits
