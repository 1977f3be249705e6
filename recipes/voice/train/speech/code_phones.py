"""Step: counts phones by first code over the speech of all voices. `python -m train.speech.code_phones W`

Reads chunks of W/speech and W/codes.safetensors; writes W/code_phones.safetensors, which `word_times.py` adds to its
own counts: it only has hibari's voice, because Kokoro needs a GPU. Each voice has the same weight.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ..codec.mel_tokenizer import MelTokenizer
from ..run_files import device_named, load_weights
from ..sizes import CODEBOOK_SIZE, FRAMES_PER_HOUR, PHONES_PER_FRAME, SPEAKERS
from ..store import encode, read_chunk
from .reading import PHONES

CODE_PHONES = "code_phones"
"""Name of the file and of its tensor, float32 [codes, 4, phones]: quarters of frames."""


def count(codes: NDArray[np.int64], phones: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Count phones uint8 [frames, 4] by code [frames] -> [codes, 4, phones]."""
    counts = np.zeros((CODEBOOK_SIZE, PHONES_PER_FRAME, len(PHONES)))
    np.add.at(counts, (codes[:, None], np.arange(PHONES_PER_FRAME), phones), 1)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.code_phones", description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--chunks", type=int, default=16, help="most chunks of each voice")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    device = device_named(options.device)
    tokenizer = MelTokenizer().to(device).eval()
    tokenizer.load_state_dict(load_weights(options.work / "codes.safetensors"), strict=False)
    total = np.zeros((CODEBOOK_SIZE, PHONES_PER_FRAME, len(PHONES)))
    for voice in SPEAKERS:
        of_voice = np.zeros_like(total)
        for path in sorted(options.work.glob(f"speech/{voice}_*.json"))[: options.chunks]:
            chunk = read_chunk(path)
            codes = encode(tokenizer, torch.from_numpy(chunk.audio).to(device).float() / 32768)[:, 0]
            of_voice += count(codes.cpu().numpy(), chunk.phones)
        frames = of_voice.sum() / PHONES_PER_FRAME
        print(f"{voice}: {frames / FRAMES_PER_HOUR:.2f} h", flush=True)
        total += of_voice / max(1, frames) * FRAMES_PER_HOUR
    save_file({CODE_PHONES: total.astype(np.float32)}, options.work / f"{CODE_PHONES}.safetensors")


if __name__ == "__main__":
    main()
