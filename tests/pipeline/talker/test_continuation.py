"""The real engine continues a generation in another slot, or after its own loss, with the codes that it would have had.

The independent loop of `test_exactness.py` gives the codes; greedy and sampled, with penalties.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fakes.waiting import until
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Continuation
from voxgate.pipeline.talker.vllm.config import EngineOptions, GpuOptions

from .test_exactness import DEVICE, VOXGATE_KERNELS, Case, begin, collect, find_cases, made

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SLOTS = 8


@pytest.fixture(scope="module")
def cases(demo_folder: Path, tokenizer: Tokenizer) -> list[Case]:
    return find_cases(demo_folder, tokenizer, SLOTS)


def new_engine(checkpoint: TalkerCheckpoint) -> TalkerEngine:
    gpu = GpuOptions(voxgate_kernels=VOXGATE_KERNELS)
    return TalkerEngine(
        checkpoint,
        EngineOptions(SLOTS, 64, kv_cache_bytes=64 << 20, device=DEVICE, dtype="float32", gpu=gpu, prefilled_prompts=1),
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: TalkerCheckpoint) -> AsyncIterator[TalkerEngine]:
    engine = new_engine(checkpoint)
    await engine.start()
    yield engine
    await engine.close()


@pytest.mark.parametrize("cuts", [(1,), (2, 4), (1, 2, 3, 4)])
async def test_generation_without_text_goes_on_in_another_slot(
    engine: TalkerEngine, cases: list[Case], cuts: tuple[int, ...]
) -> None:
    """Given up after each number of tokens in `cuts`, when the talker has read them all."""
    for case in cases:
        if len(case.tokens) <= cuts[-1]:
            continue
        frames: list[list[int]] = []
        continuation: Continuation | None = None
        for begins, ends in zip((0, *cuts), (*cuts, len(case.tokens)), strict=True):
            generation = begin(engine, case, continuation)
            generation.grant(1000)
            generation.feed(case.tokens[begins:ends])
            if ends == len(case.tokens):
                generation.close_text()
                frames += await collect(generation)
            else:
                await made(generation, ends)
                assert generation.text_frames == ends
                frames += [(await anext(generation)).tolist() for _ in range(ends - begins)]
                continuation = generation.continuation()
            await generation.aclose()
        assert frames == case.expected.frames
    assert engine.free_slots == SLOTS


async def test_generations_of_a_killed_engine_go_on_in_another(
    engine: TalkerEngine, checkpoint: TalkerCheckpoint, cases: list[Case]
) -> None:
    """Frames made and not taken from the iteration are made again; the text was complete or still to come."""
    lost_engine = new_engine(checkpoint)
    try:
        await lost_engine.start()
        lost = [begin(lost_engine, case) for case in cases]
        fed = [len(case.tokens) if number % 2 else 2 for number, case in enumerate(cases)]
        taken = [min(number, tokens) for number, tokens in enumerate(fed)]
        for generation, case, tokens, frames in zip(lost, cases, fed, taken, strict=True):
            generation.grant(frames + 2)
            generation.feed(case.tokens[:tokens], last=tokens == len(case.tokens))
        await asyncio.gather(*(made(one, min(frames + 1, n)) for one, frames, n in zip(lost, taken, fed, strict=True)))
        heard = [[(await anext(one)).tolist() for _ in range(n)] for one, n in zip(lost, taken, strict=True)]
        continuations = [generation.continuation() for generation in lost]
        for process in lost_engine._process._processes:
            process.kill()
        await until(lambda: not lost_engine.alive)
        for generation in lost:
            with pytest.raises(EngineLost):
                await collect(generation)
            await generation.aclose()
    finally:
        await lost_engine.close()
    going = [begin(engine, case, behind) for case, behind in zip(cases, continuations, strict=True)]
    for generation, case, tokens in zip(going, cases, fed, strict=True):
        generation.grant(1000)
        if tokens < len(case.tokens):
            generation.feed(case.tokens[tokens:], last=True)
    rest = await asyncio.gather(*map(collect, going))
    for case, before, after, generation in zip(cases, heard, rest, going, strict=True):
        assert before + after == case.expected.frames
        await generation.aclose()
    assert engine.free_slots == SLOTS
