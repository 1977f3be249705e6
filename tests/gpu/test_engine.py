"""The whole engine in bfloat16. Its rounding differs from the reference loop's, but chunks of text must not matter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
import torch
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.vllm.config import EngineOptions, GpuOptions

from ..pipeline.talker.plain_talker import Spoken
from ..pipeline.talker.test_exactness import FEEDS, SENTENCES, VARIETIES, VOXGATE_KERNELS, Case, at_once, begin, collect

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: TalkerCheckpoint) -> AsyncIterator[TalkerEngine]:
    options = EngineOptions(
        8, 64, kv_cache_bytes=1 << 30, device="cuda", gpu=GpuOptions(voxgate_kernels=VOXGATE_KERNELS)
    )
    engine = TalkerEngine(checkpoint, options)
    await engine.start()
    yield engine
    await engine.close()


async def codes(engine: TalkerEngine, case: Case, feed: Callable) -> list[list[int]]:
    generation = begin(engine, case, voice=next(iter(engine.checkpoint.speakers)))
    feeding = asyncio.create_task(feed(generation, case.tokens, random.Random(case.seed)))
    frames = await collect(generation)
    await feeding
    await generation.aclose()
    return frames


@pytest.mark.parametrize("feed", FEEDS[1:])
async def test_chunks_of_text_do_not_change_the_codes(
    engine: TalkerEngine, tokenizer: Tokenizer, feed: Callable
) -> None:
    """One utterance at a time, so that every step has the same batch size."""
    for number, options in enumerate(VARIETIES):
        tokens = tokenizer.encode(SENTENCES[number]).ids
        case = Case(tokens, 7 + number, options, 30, Spoken([], ended=False, margin=1.0))
        expected = await codes(engine, case, at_once)
        assert len(expected) > 4
        assert await codes(engine, case, feed) == expected
