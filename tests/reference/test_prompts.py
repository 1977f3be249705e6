"""The talker's input, position by position, for every task and layout (docs/qwen3_tts.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
import torch
from family_cases import CASES, ReferenceCase
from torch import Tensor
from voxgate.pipeline.ipc.slot_tables import SlotTables, TableShape
from voxgate.pipeline.talker.generation import Generation, Sampling
from voxgate.pipeline.talker.reference.embedding import FrameHistory, InputEmbedding
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews
from voxgate.pipeline.talker.slot_owners import SlotOwner

from .conftest import LocalModel, ReferenceRecording

TOLERANCE = 1e-6
SAMPLING = Sampling(0.0, 0, 1.0, 1.0, 0.0, 0, 1.0, seed=0)


class NoEngine:
    """Accepts a generation and never steps it."""

    def __init__(self) -> None:
        self.prompt_len = 0

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:  # noqa: ARG002  # as the engine's
        self.prompt_len = prompt_len
        return asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]  # never has a result

    def wake(self) -> None: ...
    def request_release(self, owner: SlotOwner) -> None: ...
    def free(self, owner: SlotOwner) -> None: ...


@torch.inference_mode()
async def embedded(local_model: LocalModel, case: ReferenceCase, more: int) -> tuple[Tensor, Tensor]:
    """The prompt, [positions, hidden], and the text side of `more` positions after it."""
    checkpoint = local_model.checkpoint
    shape = TableShape(1, 200, 64, 64, checkpoint.groups, checkpoint.talker.hidden)
    tables, _ = SlotTables.create(shape)
    engine = NoEngine()
    generation = Generation(tables, 0, 1, engine)
    generation.prepare(local_model.prompt(case), SAMPLING, 8)
    generation.feed(local_model.tokens(case.text))
    generation.close_text()
    history = FrameHistory.zeros(shape, checkpoint.codebook)
    embed = InputEmbedding(local_model.weights, checkpoint, HostTables(TableViews.of(tables)), history)
    positions = torch.arange(engine.prompt_len + more)
    rows = embed(torch.zeros_like(positions), positions)
    name = "talker.code_predictor.model.codec_embedding"
    frame = local_model.weights["talker.model.codec_embedding.weight"][0]
    frame = frame + sum(local_model.weights[f"{name}.{group}.weight"][0] for group in range(checkpoint.groups - 1))
    return rows[: engine.prompt_len], rows[engine.prompt_len :] - frame


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_prompts_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel], case: ReferenceCase
) -> None:
    speech = recorded("speech")
    expected, trailing = speech[f"{case.name}/prompt"], speech[f"{case.name}/trailing"]
    prompt, text = await embedded(local_model(case.variant), case, more=len(trailing) + 2)
    assert prompt.shape == expected.shape
    assert np.abs(prompt.numpy() - expected).max() < TOLERANCE
    # A frame was added and subtracted, which leaves its rounding.
    assert np.abs(text[: len(trailing)].numpy() - trailing).max() < 5 * TOLERANCE
    # Only padding follows.
    assert torch.allclose(text[-2], text[-1], atol=5 * TOLERANCE)
