"""Step: keeps codes that a finished voice speaks. `python -m train.talker.spoken_codes W CHECKPOINT OUT`

The checkpoint's talker speaks sentences of W/text/train.txt with each of its voices in turn; OUT/spoken.safetensors has
the codes of all frames, int16 [frames, 16], and the lengths of the utterances, int32 [utterances]. From them
`train.codec.recover_tokenizer` learns the tokenizer that a checkpoint does not contain. Runs where the project is
installed; one core of a CPU speaks some forty times as fast as real time, since nothing is decoded.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.prompt import custom_voice_prompt
from voxgate.pipeline.talker.vllm.config import EngineOptions

from ..run_files import save_weights
from ..speech.synthesis import read_lines

SLOTS, MAX_FRAMES = 32, 320
MIN_TOKENS, MAX_TOKENS = 6, 64
"""Sentences with fewer or more tokens are left out; a slot takes one token for four frames."""
FRAMES_PER_TOKEN, SPARE_FRAMES = 8, 12
"""Limit of an utterance's frames; a talker that misses its end says nothing that belongs to the text."""
TEMPERATURES = ((0.6, 0.45), (1.0, 0.9))
"""Of talker and predictor, in turn: as the voice is used, and with codes as varied as those of recorded speech."""

Spoken = NDArray[np.int16]


async def speak(engine: TalkerEngine, voice: str, tokens: list[int], seed: int) -> Spoken:
    """Codes of one utterance, [frames, 16]."""
    temperature, predictor_temperature = TEMPERATURES[seed % len(TEMPERATURES)]
    cap = min(MAX_FRAMES, FRAMES_PER_TOKEN * len(tokens) + SPARE_FRAMES)
    generation = engine.open()
    try:
        generation.prepare(
            custom_voice_prompt(engine.checkpoint, voice, "auto"),
            Sampling(temperature, 50, 1.0, 1.0, predictor_temperature, 50, 1.0, seed),
            cap,
        )
        generation.grant(MAX_FRAMES)
        generation.feed(tokens)
        generation.close_text()
        return np.stack([frame async for frame in generation])
    finally:
        await generation.aclose()


async def speak_all(checkpoint: Path, lines: list[str], frames: int) -> list[Spoken]:
    """Utterances of at least `frames` frames in all, of all voices."""
    loaded = load_checkpoint(checkpoint)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    engine = TalkerEngine(loaded, EngineOptions(SLOTS, MAX_FRAMES))
    work: Iterator[tuple[int, str]] = enumerate(cycle(lines))
    voices = sorted(loaded.speakers)
    spoken: list[Spoken] = []
    began = time.monotonic()
    await engine.start()

    async def keep_speaking() -> None:
        while sum(map(len, spoken)) < frames:
            number, line = next(work)
            tokens = tokenizer.encode(line).ids
            if MIN_TOKENS <= len(tokens) <= MAX_TOKENS:
                spoken.append(await speak(engine, voices[number // len(TEMPERATURES) % len(voices)], tokens, number))
                if len(spoken) % 500 == 0:
                    seconds = time.monotonic() - began
                    print(f"{sum(map(len, spoken))} frames after {seconds:.0f} s", flush=True)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SLOTS):
                tasks.create_task(keep_speaking())
    finally:
        await engine.close()
    return spoken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.talker.spoken_codes", description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--frames", type=int, default=270_000, help="frames of all voices: six hours")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    lines = read_lines(args.work)
    random.Random(args.seed).shuffle(lines)
    spoken = asyncio.run(speak_all(args.checkpoint, lines, args.frames))
    args.out.mkdir(parents=True, exist_ok=True)
    lengths = torch.tensor([len(codes) for codes in spoken], dtype=torch.int32)
    save_weights(
        args.out / "spoken.safetensors", {"codes": torch.from_numpy(np.concatenate(spoken)), "lengths": lengths}
    )


if __name__ == "__main__":
    main()
