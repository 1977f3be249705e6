"""Step: measures the errors of word times. `python -m train.speech.check_word_times W [--checkpoint FOLDER]`

The teacher reads sentences that the phone table was not trained on (W/text/held_out.txt), and the tokenizer
(W/codes.safetensors) encodes them. The gateway's word alignment follows the codes, and for comparison the audio alone,
frame by frame; both are compared with the teacher's word times, which are exact.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.pipeline.alignment.coarse import CoarseScorer
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.phones import PhoneScorer, load_phone_table
from voxgate.pipeline.alignment.scorer import AcousticScorer
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint

from .hibari import Hibari, unpacked
from .reading import Reading
from .synthesis import GAIN, RecordedSentence, sentence
from .word_times import Encode, first_codes, readings

SENTENCES = 300
"""Number of sentences."""
LOOKAHEAD_FRAMES = 3
"""Frames generated beyond the playback position at an interrupt, in the worst case."""
NEAR_MS = 100
Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class WordTimeErrors:
    """Absolute errors of the beginnings and ends of words; `late_ms` is the mean of the signed errors."""

    words: int
    median_ms: float
    mean_ms: float
    p90_ms: float
    p99_ms: float
    most_ms: float
    late_ms: float
    near: float
    """Share of the errors up to NEAR_MS."""


def word_time_errors(reported: list[Spans], reference: list[Spans]) -> WordTimeErrors:
    """Compares the spans of the same words, text by text."""
    signed = np.concatenate([np.subtract(one, two) for one, two in zip(reported, reference, strict=True)])
    absolute = np.abs(signed)
    return WordTimeErrors(
        words=sum(map(len, reported)),
        median_ms=float(np.median(absolute)),
        mean_ms=float(absolute.mean()),
        p90_ms=float(np.percentile(absolute, 90)),
        p99_ms=float(np.percentile(absolute, 99)),
        most_ms=float(absolute.max()),
        late_ms=float(signed.mean()),
        near=float(np.mean(absolute <= NEAR_MS)),
    )


def errors_table(rows: dict[str, WordTimeErrors]) -> str:
    """Formats the figures as a table in plain text."""
    lines = [f"{'error in ms':<32} median   mean    p90    p99    max   late   within {NEAR_MS} ms"]
    for name, row in rows.items():
        figures = (row.median_ms, row.mean_ms, row.p90_ms, row.p99_ms, row.most_ms, row.late_ms)
        lines.append(f"{name:<32}" + "".join(f"{figure:7.0f}" for figure in figures) + f"{row.near:14.1%}")
    return "\n".join(lines)


def aligned_spans(text: str, scorer: AcousticScorer, pcm: NDArray[np.float32], codes: NDArray[np.int16]) -> Spans:
    """Word times of speech that arrives frame by frame."""
    aligner = WordAligner(scorer=scorer)
    aligner.push_text(text, len(text))
    words = []
    for frame, code in zip(pcm.reshape(-1, FRAME_SAMPLES), codes, strict=True):
        aligner.push_audio(frame, np.array([code]))
        words += aligner.take_words()
    aligner.finish()
    return [(word.start_ms, word.end_ms) for word in words + aligner.take_words()]


def interrupted_words(
    text: str, scorer: AcousticScorer, pcm: NDArray[np.float32], codes: NDArray[np.int16], truth: Spans
) -> list[bool]:
    """Whether the word at the playback position is found, at every frame, with `LOOKAHEAD_FRAMES` more frames known."""
    aligner = LazyWordAligner(WordAligner(scorer=scorer))
    aligner.push_text(text, len(text))
    starts = [0, *(at + 1 for at, char in enumerate(text) if char == " "), len(text)]
    found = []
    for number, (frame, code) in enumerate(zip(pcm.reshape(-1, FRAME_SAMPLES), codes, strict=True)):
        aligner.push_audio(frame, np.array([code]))
        played_ms = FRAME_MS * (number + 1 - LOOKAHEAD_FRAMES)
        if played_ms > 0:
            spoken = sum(end_ms <= played_ms for _, end_ms in truth)
            found.append(aligner.spoken_until(played_ms) == starts[spoken])
    return found


def true_spans(reading: Reading, recorded: RecordedSentence) -> Spans:
    """The teacher's word times, relative to the sentence cut from its reading."""
    shift_ms = recorded.words_ms[0] - 1000 * reading.words[0].start_s
    return [(1000 * word.start_s + shift_ms, 1000 * word.end_s + shift_ms) for word in reading.words]


def check(texts: list[str], teacher: Hibari, phone_scorer: AcousticScorer, encode: Encode) -> None:
    """Print a table of errors."""
    spans: dict[str, list[Spans]] = {"codes": [], "sound": [], "known": []}
    found: dict[str, list[bool]] = {"codes": [], "sound": []}
    for text, reading in readings(texts, teacher):
        recorded = sentence(reading, GAIN)
        pcm, codes = recorded.samples.astype(np.float32) / np.float32(32768), encode(recorded.samples)
        truth = true_spans(reading, recorded)
        spans["known"].append(truth)
        for name, new_scorer in (("codes", lambda: phone_scorer), ("sound", CoarseScorer)):
            spans[name].append(aligned_spans(text, new_scorer(), pcm, codes))
            found[name] += interrupted_words(text, new_scorer(), pcm, codes, truth)
    print(f"{len(spans['known'])} sentences, {sum(map(len, spans['known']))} words")
    print(errors_table({f"aligned by {name}": word_time_errors(spans[name], spans["known"]) for name in found}))
    right = (f"{np.mean(answers):.1%} by {name}" for name, answers in found.items())
    print(f"interrupted every {FRAME_MS} ms, right in {', '.join(right)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.check_word_times", description=__doc__)
    parser.add_argument("work", type=Path, help="with text/held_out.txt and codes.safetensors")
    parser.add_argument("--weights", type=Path, help="folder of the tokenizer's weights (default: the work folder)")
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).parents[4] / "voices" / "demo")
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = load_phone_table(load_checkpoint(options.checkpoint))
    if table is None:
        raise SystemExit(
            f"{options.checkpoint} has no phone table for its codes; run python -m train.speech.word_times"
        )
    lines = (options.work / "text" / "held_out.txt").read_text("utf-8").splitlines()
    texts = [line.rpartition("\t")[2] for line in lines[: options.sentences]]
    encode = first_codes(options.weights or options.work)
    check(texts, Hibari(unpacked(options.work / "hibari")), PhoneScorer(table), encode)


if __name__ == "__main__":
    main()
