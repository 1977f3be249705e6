"""Errors of the gateway's word times, by those of hibari's readings, which are known.

On the teacher's speech: the tokenizer encodes its readings, and the gateway's alignment follows the codes as it follows
those of the talker. On the voice's own speech: the readings are warped onto it, which is exact to about 20 ms. Kokoro's
readings have no known times here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from train.speech import hibari
from train.speech.check_word_times import aligned_spans, true_spans
from train.speech.synthesis import GAIN, sentence
from train.speech.warping import warped_spans
from train.speech.word_times import Encode, readings
from voxgate.pipeline.alignment.phones import PhoneScorer, load_phone_table
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.interface import SamplingOptions

from . import plan as texts
from .session import Speaker

VOICE = hibari.VOICE
"""The voice that imitates the teacher with known times."""


@dataclass(frozen=True, slots=True)
class WordTimeFigures:
    """Absolute errors of the starts of words: median and 90th percentile; `late_ms`: the median with its sign."""

    words: int
    median_ms: float
    p90_ms: float
    late_ms: float


def measure(checkpoint: Path, encode: Encode, teacher: hibari.Hibari, stride: int) -> WordTimeFigures | None:
    """Measure every `stride`-th sentence; None if the checkpoint has no phones of its codes."""
    table = load_phone_table(load_checkpoint(checkpoint))
    if table is None:
        return None
    scorer = PhoneScorer(table)
    errors_ms: list[float] = []
    for text, reading in readings([line.spoken for line in texts.load(texts.SENTENCES)[::stride]], teacher):
        recorded = sentence(reading, GAIN)
        pcm = recorded.samples.astype(np.float32) / np.float32(32768)
        found = aligned_spans(text, scorer, pcm, encode(recorded.samples))
        known = true_spans(reading, recorded)
        errors_ms += [start_ms - true_ms for (start_ms, _), (true_ms, _) in zip(found, known, strict=True)]
    return figures(errors_ms)


async def measure_own(
    speaker: Speaker, sampling: SamplingOptions, teacher: hibari.Hibari, stride: int
) -> WordTimeFigures:
    """Measure every `stride`-th sentence in the voice VOICE, but those with words that are spoken as several."""
    lines = {line.spoken: line for line in texts.load(texts.SENTENCES)[::stride]}
    errors_ms: list[float] = []
    for spoken, reading in readings(list(lines), teacher):
        utterance = await speaker.speak(VOICE, lines[spoken].written, 0, sampling, words=True)
        if len(utterance.words) != len(reading.words):
            continue
        known_ms = [(1000 * word.start_s, 1000 * word.end_s) for word in reading.words]
        spans_ms = await asyncio.to_thread(warped_spans, known_ms, reading.samples, utterance.pcm)
        errors_ms += [word.start_ms - start_ms for word, (start_ms, _) in zip(utterance.words, spans_ms, strict=True)]
    return figures(errors_ms)


def figures(errors_ms: list[float]) -> WordTimeFigures:
    """Figures of signed errors."""
    absolute = np.abs(errors_ms)
    return WordTimeFigures(
        words=len(errors_ms),
        median_ms=float(np.median(absolute)),
        p90_ms=float(np.percentile(absolute, 90)),
        late_ms=float(np.median(errors_ms)),
    )
