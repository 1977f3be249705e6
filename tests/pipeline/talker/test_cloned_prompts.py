"""The real engine against the independent loop, in a voice with a recording, whose prompts share pages on a GPU."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.prompt import cloned_voice_prompt
from voxgate.pipeline.talker.vllm.config import EngineOptions, GpuOptions

from .plain_talker import Options, PlainTalker, Voice
from .test_exactness import DEVICE, NEAREST, VOXGATE_KERNELS, Case, collect, sampling

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

REFERENCE = "the train leaves at nine, and it rained all night, so please take a seat and wait for the others."
FRAMES = 50
"""Frames of the recording. They outnumber its text tokens, so the prompt contains the first tokens to be spoken."""
SENTENCES = ("hello.", "yes, of course.", "she plays the violin.", "it rained all night.")
CAP = 12


@pytest.fixture(scope="module")
def base_folder(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo voice as a checkpoint for cloned voices."""
    folder = tmp_path_factory.mktemp("base")
    for file in demo_folder.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((demo_folder / "config.json").read_text()) | {"tts_model_type": "base"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def voice(base_folder: Path) -> ClonedVoice:
    checkpoint, chance = load_checkpoint(base_folder), np.random.default_rng(3)
    vector = chance.standard_normal(checkpoint.talker.hidden).astype(np.float32)
    codes = chance.integers(0, checkpoint.codebook, (FRAMES, checkpoint.groups))
    return ClonedVoice("ada", vector, REFERENCE, codes)


@pytest.fixture(scope="module")
def cloned_cases(base_folder: Path, tokenizer: Tokenizer, voice: ClonedVoice) -> list[Case]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert voice.reference_codes is not None
    plain, found = PlainTalker(base_folder), []
    spoken_voice = Voice(
        vector=torch.from_numpy(voice.speaker_vector),
        reference=tuple(tokenizer.encode(REFERENCE).ids),
        frames=tuple(map(tuple, voice.reference_codes.tolist())),
    )
    for number, sentence in enumerate(SENTENCES):
        tokens = tokenizer.encode(sentence).ids
        for seed in range(number, 1000, len(SENTENCES)):
            spoken = plain.speak(tokens, seed, Options(), spoken_voice, CAP)
            if spoken.margin > NEAREST:
                found.append(Case(tokens, seed, Options(), CAP, spoken))
                break
    torch.set_num_threads(threads)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(base_folder: Path) -> AsyncIterator[TalkerEngine]:
    gpu = GpuOptions(voxgate_kernels=VOXGATE_KERNELS)
    options = EngineOptions(4, 64, kv_cache_bytes=256 << 20, device=DEVICE, dtype="float32", gpu=gpu)
    engine = TalkerEngine(load_checkpoint(base_folder), options)
    await engine.start()
    yield engine
    await engine.close()


async def speak_all(engine: TalkerEngine, cases: Sequence[Case], voice: ClonedVoice, reference: list[int]) -> None:
    """Speaks the cases at once and compares their codes."""

    async def speak(case: Case) -> None:
        generation = engine.open()
        prompt = cloned_voice_prompt(engine.checkpoint, voice, "auto", reference)
        generation.prepare(prompt, sampling(case), case.cap)
        generation.grant(1000)
        generation.feed(case.tokens, last=True)
        frames = await collect(generation)
        await generation.aclose()
        assert frames == case.expected.frames

    await asyncio.gather(*map(speak, cases))


async def test_codes_are_those_of_the_independent_loop(
    engine: TalkerEngine, cloned_cases: list[Case], voice: ClonedVoice, tokenizer: Tokenizer
) -> None:
    reference = tokenizer.encode(REFERENCE).ids
    # The first computes its whole prompt, the next ones begin behind the pages that it left.
    for cases in (cloned_cases[:1], cloned_cases[1:2], cloned_cases, cloned_cases):
        await speak_all(engine, cases, voice, reference)
