"""Prints the codes that an engine in bfloat16 gives, one utterance after the other, for `test_small_chip.py`.

`python -m tests.gpu.engine_codes` with VOXGATE_TEST_CHECKPOINT for another checkpoint than the demo voice. What the
engine logs of its start goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from importlib.resources import files
from pathlib import Path

from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.prompt import custom_voice_prompt
from voxgate.pipeline.talker.vllm.config import EngineOptions

TEXTS = ("hello.", "how can i help you today?", "the train leaves at nine.")
SLOTS, FRAMES, CACHE_BYTES, TIMEOUT_S = 8, 64, 1 << 30, 60.0
DEVICE = os.environ.get("VOXGATE_TEST_DEVICE", "cuda")


async def speak(engine: TalkerEngine, tokens: list[int], seed: int) -> list[list[int]]:
    voice = next(iter(engine.checkpoint.speakers))
    generation = engine.open()
    generation.prepare(
        custom_voice_prompt(engine.checkpoint, voice, "auto"),
        Sampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0, seed),
        FRAMES // 2,
    )
    generation.grant(FRAMES)
    generation.feed(tokens)
    generation.close_text()
    async with asyncio.timeout(TIMEOUT_S):
        codes = [frame.tolist() async for frame in generation]
    await generation.aclose()
    return codes


async def main() -> None:
    folder = os.environ.get("VOXGATE_TEST_CHECKPOINT") or Path(str(files("voxgate.voices"))) / "demo"
    checkpoint = load_checkpoint(Path(folder))
    tokenizer = Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    engine = TalkerEngine(checkpoint, EngineOptions(SLOTS, FRAMES, kv_cache_bytes=CACHE_BYTES, device=DEVICE))
    await engine.start()
    codes = [await speak(engine, tokenizer.encode(text).ids, seed) for seed, text in enumerate(TEXTS, 7)]
    await engine.close()
    print(json.dumps(codes))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
