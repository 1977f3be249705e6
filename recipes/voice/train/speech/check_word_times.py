"""Step: how exact word times are where the truth is known. `python -m train.speech.check_word_times W [--checkpoint FOLDER]`

Flite reads sentences that no table was made of (W/text/held_out.txt), and the tokenizer (W/codes.safetensors) makes
codes of them. The gateway's own clock follows the codes, and the sound alone for comparison, a frame at a time; both
are held against flite's word times, which are exact.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from voxgate.benchmarks.words import Spans, errors_table, word_time_errors
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.pipeline.alignment.coarse import CoarseScorer
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.phones import PhoneScorer, load_phone_table
from voxgate.pipeline.alignment.scorer import AcousticScorer
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.checkpoint import load_checkpoint

from .audio import resample_16_to_24
from .flite import VOICES, FliteReading
from .synthesis import GAINS, RecordedSentence, sentence
from .word_times import Encode, first_codes, readings

SENTENCES = 300
"""Over all voices."""
UNHEARD_FRAMES = 3
"""Made ahead of what is heard, when an interrupt comes at the worst of times."""


def told(text: str, ear: AcousticScorer, pcm: NDArray[np.float32], codes: NDArray[np.int16]) -> Spans:
    """What the clock says of speech that comes a frame at a time."""
    clock = WordAligner(scorer=ear)
    clock.push_text(text, len(text))
    words = []
    for frame, code in zip(pcm.reshape(-1, FRAME_SAMPLES), codes, strict=True):
        clock.push_audio(frame, np.array([code]))
        words += clock.take_words()
    clock.finish()
    return [(word.start_ms, word.end_ms) for word in words + clock.take_words()]


def interrupted(
    text: str, ear: AcousticScorer, pcm: NDArray[np.float32], codes: NDArray[np.int16], truth: Spans
) -> list[bool]:
    """Whether the word under way is found, asked every 80 ms, when little more was made than was heard."""
    clock = LazyWordAligner(WordAligner(scorer=ear))
    clock.push_text(text, len(text))
    starts = [0, *(at + 1 for at, char in enumerate(text) if char == " "), len(text)]
    found = []
    for number, (frame, code) in enumerate(zip(pcm.reshape(-1, FRAME_SAMPLES), codes, strict=True)):
        clock.push_audio(frame, np.array([code]))
        played_ms = FRAME_MS * (number + 1 - UNHEARD_FRAMES)
        if played_ms > 0:
            spoken = sum(end_ms <= played_ms for _, end_ms in truth)
            found.append(clock.spoken_until(played_ms) == starts[spoken])
    return found


def known(reading: FliteReading, read: RecordedSentence) -> Spans:
    """Flite's own times, in the sentence cut out of its reading."""
    shift_ms = read.words_ms[0] - 1000 * reading.words[0].start_s
    return [(1000 * word.start_s + shift_ms, 1000 * word.end_s + shift_ms) for word in reading.words]


def check(texts: list[str], voices: list[str], by_phones: AcousticScorer, encode: Encode) -> None:
    """Print a table for each voice."""
    spans: defaultdict[str, dict[str, list[Spans]]] = defaultdict(lambda: {"codes": [], "sound": [], "known": []})
    found: defaultdict[str, dict[str, list[bool]]] = defaultdict(lambda: {"codes": [], "sound": []})
    for voice, text, reading in readings(texts, voices):
        read = sentence(reading, GAINS[voice])
        pcm, codes = resample_16_to_24(torch.from_numpy(read.samples / np.float32(32768))).numpy(), encode(read.samples)
        truth = known(reading, read)
        spans[voice]["known"].append(truth)
        for name, ear in (("codes", lambda: by_phones), ("sound", CoarseScorer)):
            spans[voice][name].append(told(text, ear(), pcm, codes))
            found[voice][name] += interrupted(text, ear(), pcm, codes, truth)
    for voice, row in spans.items():
        print(f"{voice}: {len(row['known'])} sentences, {sum(map(len, row['known']))} words")
        print(
            errors_table(
                {f"followed by {name}": word_time_errors(row[name], row["known"]) for name in ("codes", "sound")}
            )
        )
        right = (f"{np.mean(answers):.1%} by {name}" for name, answers in found[voice].items())
        print(f"interrupted every {FRAME_MS} ms, the word is right in {', '.join(right)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.check_word_times", description=__doc__)
    parser.add_argument("work", type=Path, help="with text/held_out.txt and codes.safetensors")
    parser.add_argument("--weights", type=Path, help="folder of the tokenizer's weights, where it is another")
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).parents[4] / "voices" / "demo")
    parser.add_argument("--voices", nargs="+", default=list(VOICES), choices=VOICES)
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="over all voices")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = load_phone_table(load_checkpoint(options.checkpoint))
    if table is None:
        raise SystemExit(f"{options.checkpoint} has no table for its codes: python -m train.speech.word_times")
    lines = (options.work / "text" / "held_out.txt").read_text("utf-8").splitlines()
    texts = [line.rpartition("\t")[2] for line in lines[: options.sentences]]
    encode = first_codes(options.weights or options.work)
    check(texts, options.voices, PhoneScorer(table), encode)


if __name__ == "__main__":
    main()
