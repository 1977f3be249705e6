"""Step: makes the phone table for word times. `python -m train.speech.word_times W [--checkpoint FOLDER]`

The teacher reads sentences of W/text/train.txt, with the times of phones; the tokenizer (W/codes.safetensors,
or collected) gives the first code of each frame. Their joint counts give the phones of each code, and the words the
pronunciation of letters. Writes word_times.safetensors (310 kB) into the checkpoint's folder; it is valid for that
checkpoint's first codebook only. Takes some minutes on a CPU.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from voxgate.pipeline.alignment.phones import PHONE_TABLE_FILE, codebook_digest

from ..codec.mel_tokenizer import MelTokenizer
from ..run_files import read_parts
from ..sizes import CODEBOOK_SIZE, PHONES_PER_FRAME
from .audio import tokenizer_mel
from .code_phones import CODE_PHONES, count
from .hibari import VOICE, Hibari, unpacked
from .letters import LETTERS, PhoneIndices, train_letters
from .reading import PAUSE, PHONES, Reading
from .synthesis import GAIN, RecordedSentence, sentence

SENTENCES = 4500
"""Number of sentences: about five hours."""
SMOOTHING = 4.0
"""Pseudo-count of each code, distributed over phones by their prior."""

Encode = Callable[[NDArray[np.int16]], NDArray[np.int16]]
"""Samples at 24 kHz, in whole frames -> the first code of each frame."""


@dataclass(slots=True)
class PhoneCounts:
    """Counts over the readings."""

    codes: NDArray[np.float64] = field(default_factory=lambda: np.zeros((CODEBOOK_SIZE, PHONES_PER_FRAME, len(PHONES))))
    """Hops with each phone in each quarter of the frames with each code."""
    other_voices: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    """The same of the other voices' speech, as `code_phones.py` counts it."""
    phones: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(PHONES)))
    """Number of each phone."""
    words: Counter[tuple[str, PhoneIndices]] = field(default_factory=Counter)

    def add(self, reading: Reading, recorded: RecordedSentence, codes: NDArray[np.int16]) -> None:
        """Count a reading, cut into the frames of `recorded`, which have `codes`."""
        self.codes += count(codes.astype(np.int64), recorded.phones)
        np.add.at(self.phones, [PHONES.index(phone.name) for phone in reading.phones], 1)
        for word in reading.words:
            letters = re.sub(f"[^{LETTERS}]", "", word.text.lower())
            phones = tuple(_phones(reading, word.start_s, word.end_s))
            if letters and phones:
                self.words[letters, phones] += 1


def _phones(reading: Reading, start_s: float, end_s: float) -> Iterator[int]:
    """Numbers of the phones between two times."""
    begin_s = 0.0
    for phone in reading.phones:
        if begin_s >= start_s - 1e-4 and phone.end_s <= end_s + 1e-4 and phone.name != PAUSE:
            yield PHONES.index(phone.name)
        begin_s = phone.end_s


def tables(counts: PhoneCounts) -> dict[str, NDArray[Any]]:
    """The tensors of `voxgate.pipeline.alignment.phones.PhoneTable`, by their names in the file."""
    codes = counts.codes + counts.other_voices
    hops = codes.sum(axis=(0, 1))
    prior = (hops + 1) / (hops + 1).sum()
    shares = codes + SMOOTHING * prior
    shares /= shares.sum(axis=2, keepdims=True)
    return {
        "likelier": shares / prior,
        "usual": prior,
        "moments": counts.codes.sum(axis=(0, 1)) / np.maximum(counts.phones, 1),
    }


def first_codes(work: Path) -> Encode:
    """Load the tokenizer from a work folder or collected weights. Raises ValueError for weights of another model."""
    model = MelTokenizer().eval()
    state = {name: value.float() for name, value in read_parts(work, "codes").items()}
    mismatch = model.load_state_dict(state, strict=False)
    if mismatch.unexpected_keys or any(not name.startswith("mel_decoder.") for name in mismatch.missing_keys):
        raise ValueError(f"{work} holds weights of another model: {mismatch}")

    @torch.inference_mode()
    def encode(samples: NDArray[np.int16]) -> NDArray[np.int16]:
        audio = torch.from_numpy(samples / np.float32(32768))
        codes: NDArray[np.int64] = model.encode(tokenizer_mel(audio[None]))[0, :, 0].numpy()
        return codes.astype(np.int16)

    return encode


def readings(texts: Sequence[str], teacher: Hibari) -> Iterator[tuple[str, Reading]]:
    """Yield each text with its reading; unreadable texts are skipped."""
    for text in texts:
        try:
            yield text, teacher.read(text)
        except ValueError:
            continue


def write(counts: PhoneCounts, checkpoint: Path, seed: int) -> Path:
    """Write the file in half precision; returns its path."""
    tensors = tables(counts) | {
        name: tensor.numpy() for name, tensor in train_letters(counts.words, len(PHONES), seed).items()
    }
    halves = {name: np.ascontiguousarray(tensor, np.float16) for name, tensor in tensors.items()}
    digest = codebook_digest(checkpoint / "speech_tokenizer")
    path = checkpoint / PHONE_TABLE_FILE
    save_file(halves, path, {"letters": LETTERS, "phones": " ".join(PHONES), "codebook": digest})
    path.chmod(0o644)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.word_times", description=__doc__)
    parser.add_argument("work", type=Path, help="folder with text/train.txt and codes.safetensors")
    parser.add_argument("--weights", type=Path, help="folder of the tokenizer's weights (default: the work folder)")
    parser.add_argument(
        "--checkpoint", type=Path, default=Path(__file__).parents[4] / "voices" / "demo", help="folder to write into"
    )
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--seed", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = (options.work / "text" / "train.txt").read_text("utf-8").splitlines()
    texts = [line.rpartition("\t")[2] for line in random.Random(options.seed).sample(lines, options.sentences)]
    encode = first_codes(options.weights or options.work)
    counts = PhoneCounts()
    for _, reading in readings(texts, Hibari(unpacked(options.work / "hibari"))):
        recorded = sentence(reading, GAIN)
        counts.add(reading, recorded, encode(recorded.samples))
    try:
        counted = read_parts(options.weights or options.work, CODE_PHONES)
    except FileNotFoundError:
        print(f"only {VOICE} is counted: run python -m train.speech.code_phones with the speech of the other voices")
    else:
        counts.other_voices = counted[CODE_PHONES].double().numpy()
    hours = counts.codes.sum() / PHONES_PER_FRAME * 0.08 / 3600
    path = write(counts, options.checkpoint, options.seed)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB, from {hours:.1f} h and {len(counts.words)} words")


if __name__ == "__main__":
    main()
