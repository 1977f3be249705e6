"""Step: what tells the gateway when each word is heard. `python -m train.word_times W [--checkpoint ..]`

Flite reads sentences of W/text/train.txt in every voice and says when each phone begins; the tokenizer
(W/codes.safetensors) says which first code each frame has. Counted together they tell what a code sounds like, and the
words among them how letters are said. Writes word_times.safetensors into the checkpoint's folder: some 200 kB, good for
the checkpoint's first codebook alone. Some minutes on a CPU.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from voxgate.pipeline.phone_table import FILE, MOMENTS, codebook_digest

from .flite import PAUSE, PHONES, RATE_HZ, VOICES, Flite, Reading
from .letters import LETTERS, Said, train_letters

FRAME = RATE_HZ * 80 // 1000
LEAD = RATE_HZ * 140 // 1000
"""Silence left in front of the first word, as in training."""
MOMENT_S = 0.02

_SMOOTHING = 4.0
"""Every code counts as if it had been heard so many times with each phone's usual share."""

Encode = Callable[[NDArray[np.int16]], NDArray[np.int64]]
"""16 kHz samples, whole frames of them -> the first code of each frame, int [frames]."""


@dataclass(slots=True)
class Counts:
    """What was read, counted."""

    codes: NDArray[np.float64]
    """[codes, 4, phones]: phones in each quarter of the frames with a code."""
    phones: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(PHONES)))
    """How many of each phone."""
    words: Counter[tuple[str, Said]] = field(default_factory=Counter)

    def add(self, reading: Reading, encode: Encode) -> None:
        """Count one reading; what is too odd to have letters for its phones counts as sound alone."""
        samples, start_s = cut(reading)
        first = encode(samples)
        ends_s = np.array([phone.end_s for phone in reading.phones]) - start_s
        numbers = np.array([PHONES.index(phone.name) for phone in reading.phones])
        at_s = (np.arange(MOMENTS * len(first)) + 0.5) * MOMENT_S
        there = np.append(numbers, 0)[np.searchsorted(ends_s, at_s)].reshape(-1, MOMENTS)
        np.add.at(self.codes, (first[:, None], np.arange(MOMENTS)[None], there), 1)
        np.add.at(self.phones, numbers, 1)
        for word in reading.words:
            letters = re.sub(f"[^{LETTERS}]", "", word.text.lower())
            said = tuple(_inside(reading, word.start_s, word.end_s))
            if letters and said:
                self.words[letters, said] += 1


def cut(reading: Reading) -> tuple[NDArray[np.int16], float]:
    """Whole frames that begin shortly before the first word, and where in the reading that is."""
    first = reading.phones[0]
    start = max(0, round(first.end_s * RATE_HZ) - LEAD) // 2 * 2 if first.name == PAUSE else 0
    samples = reading.samples[start:]
    return np.pad(samples, (0, -len(samples) % FRAME)), start / RATE_HZ


def _inside(reading: Reading, start_s: float, end_s: float) -> Iterator[int]:
    begin_s = 0.0
    for phone in reading.phones:
        if begin_s >= start_s - 1e-4 and phone.end_s <= end_s + 1e-4 and phone.name != PAUSE:
            yield PHONES.index(phone.name)
        begin_s = phone.end_s


def tables(counts: Counts) -> dict[str, NDArray[np.float32]]:
    """What the file says of codes: see `voxgate.pipeline.phone_table.PhoneTable`."""
    moments = counts.codes.sum(axis=(0, 1))
    usual = (moments + 1) / (moments + 1).sum()
    shares = counts.codes + _SMOOTHING * usual
    shares /= shares.sum(axis=2, keepdims=True)
    lasts = moments / np.maximum(counts.phones, 1)
    return {
        "likelier": (shares / usual).astype(np.float32),
        "usual": usual.astype(np.float32),
        "moments": lasts.astype(np.float32),
    }


def read(texts: Sequence[str], voices: Sequence[str], encode: Encode, codes: int) -> Counts:
    """Every voice reads its share of the texts."""
    counts = Counts(np.zeros((codes, MOMENTS, len(PHONES))))
    for number, voice in enumerate(voices):
        flite = Flite(voice)
        for text in texts[number :: len(voices)]:
            try:
                counts.add(flite.read(text), encode)
            except ValueError as error:
                print(f"left out: {error}")
        print(f"{voice}: {counts.codes.sum() / MOMENTS * 0.08 / 60:.0f} min, {len(counts.words)} words", flush=True)
    return counts


def write(counts: Counts, checkpoint: Path, seed: int) -> Path:
    """The file, half precision."""
    network = train_letters(counts.words, len(PHONES), seed)
    tensors = tables(counts) | {name: tensor.numpy() for name, tensor in network.items()}
    halves = {name: np.ascontiguousarray(tensor, np.float16) for name, tensor in tensors.items()}
    about = {
        "letters": LETTERS,
        "phones": " ".join(PHONES),
        "codebook": codebook_digest(checkpoint / "speech_tokenizer"),
    }
    save_file(halves, checkpoint / FILE, about)
    return checkpoint / FILE


def tokenizer(weights: Path) -> tuple[Encode, int]:
    """The first codebook of the trained tokenizer, and how many codes it has."""
    from .audio import resample_16_to_24, tokenizer_mel
    from .files import load_weights
    from .mel_tokenizer import MelTokenizer
    from .sizes import CODEBOOK_SIZE

    model = MelTokenizer().eval()
    model.load_state_dict(load_weights(weights), strict=False)

    @torch.inference_mode()
    def encode(samples: NDArray[np.int16]) -> NDArray[np.int64]:
        audio = resample_16_to_24(torch.from_numpy(samples / np.float32(32768)))
        codes: NDArray[np.int64] = model.encode(tokenizer_mel(audio[None]))[0, :, 0].numpy()
        return codes

    return encode, CODEBOOK_SIZE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="with text/train.txt and codes.safetensors")
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).parent.parent, help="folder to write into")
    parser.add_argument("--voices", nargs="+", default=list(VOICES), choices=VOICES)
    parser.add_argument("--sentences", type=int, default=4500, help="over all voices")
    parser.add_argument("--seed", type=int, default=8)
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    lines = (parsed.work / "text" / "train.txt").read_text("utf-8").splitlines()
    texts = [line.rpartition("\t")[2] for line in random.Random(parsed.seed).sample(lines, parsed.sentences)]
    encode, codes = tokenizer(parsed.work / "codes.safetensors")
    path = write(read(texts, parsed.voices, encode, codes), parsed.checkpoint, parsed.seed)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
