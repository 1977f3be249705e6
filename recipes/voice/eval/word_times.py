"""Errors of the gateway's word times on the teacher's speech, whose word times are known.

The tokenizer encodes hibari's readings, and the gateway's alignment follows the codes as it follows those of the
talker. Kokoro's readings have no known times here, and the errors on the voice's own speech cannot be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from train.speech import hibari
from train.speech.check_word_times import aligned_spans, true_spans
from train.speech.synthesis import GAIN, sentence
from train.speech.word_times import Encode, readings
from voxgate.pipeline.alignment.phones import PhoneScorer, load_phone_table
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint

from . import plan as texts


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


def figures(errors_ms: list[float]) -> WordTimeFigures:
    """Figures of signed errors."""
    absolute = np.abs(errors_ms)
    return WordTimeFigures(
        words=len(errors_ms),
        median_ms=float(np.median(absolute)),
        p90_ms=float(np.percentile(absolute, 90)),
        late_ms=float(np.median(errors_ms)),
    )
