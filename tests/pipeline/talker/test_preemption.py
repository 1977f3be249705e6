"""The real engine with a cache for 3 of 8 utterances: each is spoken to its end, as the independent loop speaks it.

vLLM preempts generations and recomputes them later. No listener may lose speech by it, and a generation that waits
for text or credit must not keep memory from those that are due.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Generation
from voxgate.pipeline.talker.vllm.config import EngineOptions, GpuOptions

from .plain_talker import Options, PlainTalker, Voice
from .test_exactness import DEVICE, VOXGATE_KERNELS, Case, begin, collect, made

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

UTTERANCES, FITTING = 8, 3
FRAMES = 140
"""With the prompt, more positions than one page of the cache has."""
MAX_FRAMES = 400
"""Longest generation: a slot takes a text token for every four frames."""
NEAREST = 7e-6
"""Least distance of a draw from another outcome: a history of this many frames adds to the rounding of short ones."""
PAGE = 128
"""Positions of a page on a CPU; on a GPU, pages are smaller and more of them fit in the same bytes."""
TEXT = "it rained all night, and in the morning the garden was full of small birds that sang as if it had not. "


@pytest.fixture(scope="module")
def long_cases(demo_folder: Path, tokenizer: Tokenizer) -> list[Case]:
    """Utterances of `FRAMES` frames, each ended by its cap; each occurs twice, because the independent loop is slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    talker, options, tokens = PlainTalker(demo_folder), Options(), tokenizer.encode(TEXT * 3).ids
    found: list[Case] = []
    for seed in range(100, 200):
        spoken = talker.speak(tokens, seed, options, Voice("heart"), FRAMES)
        if spoken.margin > NEAREST and len(spoken.frames) == FRAMES:
            found.append(Case(tokens, seed, options, FRAMES, spoken))
        if 2 * len(found) == UTTERANCES:
            break
    torch.set_num_threads(threads)
    assert 2 * len(found) == UTTERANCES
    return found * 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: TalkerCheckpoint) -> AsyncIterator[TalkerEngine]:
    size = checkpoint.talker
    page_bytes = 2 * size.layers * size.kv_heads * size.head_dim * 4 * PAGE
    engine = TalkerEngine(
        checkpoint,
        EngineOptions(
            UTTERANCES,
            MAX_FRAMES,
            # vLLM keeps one page for itself.
            kv_cache_bytes=(2 * FITTING + 1) * page_bytes,
            device=DEVICE,
            dtype="float32",
            gpu=GpuOptions(voxgate_kernels=VOXGATE_KERNELS),
        ),
    )
    await engine.start()
    yield engine
    await engine.close()


def begin_whole(engine: TalkerEngine, case: Case, credit: int) -> Generation:
    generation = begin(engine, case)
    generation.feed(case.tokens)
    generation.close_text()
    generation.grant(credit)
    return generation


async def test_utterances_beyond_the_cache_are_spoken_exactly(engine: TalkerEngine, long_cases: list[Case]) -> None:
    generations = [begin_whole(engine, case, credit=1000) for case in long_cases]
    spoken = await asyncio.gather(*map(collect, generations))
    assert spoken == [case.expected.frames for case in long_cases]
    for generation in generations:
        await generation.aclose()


async def test_held_generations_give_their_memory_to_those_that_are_due(
    engine: TalkerEngine, long_cases: list[Case]
) -> None:
    """Three generations fill the cache and are held; the others must be spoken, then the three go on exactly."""
    held = [begin_whole(engine, case, credit=FRAMES - 4) for case in long_cases[:FITTING]]
    for generation in held:
        await made(generation, FRAMES - 4)
    due = [begin_whole(engine, case, credit=1000) for case in long_cases[FITTING:]]
    assert await asyncio.gather(*map(collect, due)) == [case.expected.frames for case in long_cases[FITTING:]]
    for generation in held:
        generation.grant(1000)
    assert await asyncio.gather(*map(collect, held)) == [case.expected.frames for case in long_cases[:FITTING]]
    for generation in (*held, *due):
        await generation.aclose()
    assert engine.free_slots == UTTERANCES
