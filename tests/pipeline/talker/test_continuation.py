"""The real engine continues a generation in another slot: greedy codes are those of one that kept its slot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Continuation, Sampling
from voxgate.pipeline.talker.vllm.config import EngineOptions, GpuOptions

from .plain_talker import Options, PlainTalker, Voice
from .test_exactness import DEVICE, NEAREST, SENTENCES, VOXGATE_KERNELS, Case, begin, collect, made

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

GREEDY = Options(temperature=0.0, predictor_temperature=0.0, penalty=1.0)
"""Without noise, whose frame numbers begin anew in another slot, and penalty, which forgets the codes of the first."""
SAMPLING = Sampling(0.0, 50, 1.0, 1.0, 0.0, 50, 1.0, seed=1)
"""The same in the slots that follow, with another seed."""
CAP = 30


@pytest.fixture(scope="module")
def cases(demo_folder: Path, tokenizer: Tokenizer) -> list[Case]:
    """Sentences with the codes of the independent loop, in which no draw is close to another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    talker, found = PlainTalker(demo_folder), []
    for sentence in SENTENCES:
        tokens = tokenizer.encode(sentence).ids
        spoken = talker.speak(tokens, 0, GREEDY, Voice("slt"), CAP)
        if spoken.margin > NEAREST and len(tokens) > 4:
            found.append(Case(tokens, 0, GREEDY, CAP, spoken))
    torch.set_num_threads(threads)
    assert len(found) > 2
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: TalkerCheckpoint) -> AsyncIterator[TalkerEngine]:
    gpu = GpuOptions(voxgate_kernels=VOXGATE_KERNELS)
    options = EngineOptions(
        2, 64, kv_cache_bytes=64 << 20, device=DEVICE, dtype="float32", gpu=gpu, prefilled_prompts=1
    )
    engine = TalkerEngine(checkpoint, options)
    await engine.start()
    yield engine
    await engine.close()


@pytest.mark.parametrize("cuts", [(1,), (3,), (2, 4), (1, 2, 3, 4)])
async def test_continued_generation_makes_the_codes_of_one_that_kept_its_slot(
    engine: TalkerEngine, cases: list[Case], cuts: tuple[int, ...]
) -> None:
    """Given up after each number of tokens in `cuts`, when the talker has read them all."""
    for case in cases:
        frames: list[list[int]] = []
        continuation: Continuation | None = None
        for begins, ends in zip((0, *cuts), (*cuts, len(case.tokens)), strict=True):
            generation = begin(engine, case)
            if continuation is not None:
                generation.prepare(continuation.prompt, SAMPLING, case.cap - len(frames))
                generation.repeat(continuation)
            generation.grant(1000)
            generation.feed(case.tokens[begins:ends])
            if ends == len(case.tokens):
                generation.close_text()
                frames += await collect(generation)
            else:
                await made(generation, ends - begins)
                assert generation.text_frames == ends - begins
                continuation = generation.continuation()
                assert continuation is not None
                frames += [(await anext(generation)).tolist() for _ in range(ends - begins)]
            await generation.aclose()
        assert frames == case.expected.frames
    assert engine.free_slots == 2
