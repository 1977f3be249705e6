"""The real engine with sizes that no published checkpoint has, against the independent loop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch
from fakes.waiting import DEADLINE_S
from safetensors.torch import save_file
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.checkpoint.weights import PREFIX, tensor_shapes
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.prompt import custom_voice_prompt
from voxgate.pipeline.talker.vllm.config import EngineOptions

from .plain_talker import Options, PlainTalker, Voice

pytestmark = [pytest.mark.engine, pytest.mark.asyncio]

GREEDY = Options(temperature=0.0, predictor_temperature=0.0, penalty=1.3)
FRAMES = 12
GROUPS = 5


def write_odd_checkpoint(folder: Path, demo_folder: Path) -> None:
    """Writes a talker with random weights whose widths are no multiples of a vector, and with five codes a frame."""
    config = json.loads((demo_folder / "config.json").read_text())
    odd = {"num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "num_code_groups": GROUPS}
    talker = config["talker_config"]
    talker |= odd | {"hidden_size": 36, "intermediate_size": 100, "head_dim": 32, "text_hidden_size": 14}
    talker["rope_scaling"]["mrope_section"] = [6, 5, 5]
    talker["code_predictor_config"] |= odd | {"hidden_size": 20, "intermediate_size": 28, "head_dim": 10}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text((demo_folder / "generation_config.json").read_text())
    generator = torch.Generator().manual_seed(3)
    weights = {}
    for name, shape in tensor_shapes(load_checkpoint(folder)).items():
        values = torch.randn(shape, generator=generator)
        weights[PREFIX + name] = 1 + 0.1 * values if name.endswith("norm.weight") else values * shape[-1] ** -0.5
    save_file(weights, folder / "model.safetensors")


async def test_widths_that_are_no_multiples_of_a_vector_give_the_same_codes(
    tmp_path: Path, demo_folder: Path, tokenizer: Tokenizer
) -> None:
    write_odd_checkpoint(tmp_path, demo_folder)
    tokens = tokenizer.encode("the train leaves at nine.").ids
    expected = PlainTalker(tmp_path).speak(tokens, 1, GREEDY, Voice("heart"), FRAMES)
    checkpoint = load_checkpoint(tmp_path)
    engine = TalkerEngine(checkpoint, EngineOptions(2, 64, kv_cache_bytes=8 << 20, dtype="float32"))
    await engine.start()
    try:
        generation = engine.open()
        sampling = Sampling(0.0, GREEDY.top_k, GREEDY.top_p, GREEDY.penalty, 0.0, 1, 1.0, seed=1)
        generation.prepare(custom_voice_prompt(checkpoint, "heart", "auto"), sampling, FRAMES)
        generation.grant(1000)
        generation.feed(tokens, last=True)
        async with asyncio.timeout(DEADLINE_S):
            frames = [frame.tolist() async for frame in generation]
        await generation.aclose()
    finally:
        await engine.close()
    assert len(frames[0]) == GROUPS
    assert frames == expected.frames
