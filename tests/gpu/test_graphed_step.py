"""The end of a step as CUDA graphs with its frame sender, against the reference step. Needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fakes.waiting import block_until
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.ipc.records import HEADER, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field, Option, SlotTables, TableShape
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews

from ..pipeline.talker.small_model import small_checkpoint, small_weights
from .conftest import mapped_tables

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

SHAPE = TableShape(slots=4, prefix=8, text=16, frames=20, groups=4, hidden=24)
PREFIX = 5


@pytest.fixture(scope="module")
def tables() -> Iterator[SlotTables]:
    with mapped_tables(SHAPE) as tables:
        yield tables


def test_graphs_send_the_frames_of_the_reference_step(
    checkpoint: TalkerCheckpoint, tables: SlotTables, sent: list[list[int]]
) -> None:
    from voxgate.pipeline.talker.cuda.frame_sender import FrameSender
    from voxgate.pipeline.talker.cuda.frame_step import GpuFrameStep, GraphedStep, TableSnapshot
    from voxgate.pipeline.talker.cuda.predictor.predictor import GpuCodePredictor
    from voxgate.pipeline.talker.reference.embedding import FrameHistory
    from voxgate.pipeline.talker.reference.predictor import CodePredictor, Predictor
    from voxgate.pipeline.talker.reference.row_tags import append_row_tags
    from voxgate.pipeline.talker.reference.step import FrameStep

    small = small_checkpoint(checkpoint)
    weights = small_weights(small)
    head, table = weights["talker.codec_head.weight"], weights["talker.model.codec_embedding.weight"]
    for slot in range(3):
        row = tables.control[slot]
        row[Field.EPOCH], row[Field.PREFIX_LEN], row[Field.TEXT_LEN] = slot + 1, PREFIX, 1
        row[Field.CLOSED], row[Field.FRAME_CAP], row[Field.SEED], row[Field.TOP_K] = 1, 3, slot, 5
        tables.options[slot, list(Option)] = (0.9, 1.0, 1.1, 0.8, 1.0)

    def make(device: str, kind: type, report) -> tuple[FrameStep, Predictor]:
        own = {name: tensor.to(device) for name, tensor in weights.items()}
        predictor = kind(own, table.to(device), small.predictor, small.groups, SHAPE.slots)
        history = FrameHistory.zeros(SHAPE, small.codebook, torch.device(device))
        reader = HostTables(TableViews.of(tables))
        return FrameStep(head.to(device), predictor, small, SHAPE, reader, history, report), predictor

    expected: list[list[int]] = []
    reference, _ = make("cpu", CodePredictor, lambda message: expected.extend(unpack_records(message, 4).tolist()))
    sender = FrameSender(SHAPE.slots, HEADER + 4, lambda message: sent.extend(unpack_records(message, 4).tolist()))
    device = torch.device("cuda")
    snapshot = TableSnapshot.of(SHAPE.slots, device)
    step = GpuFrameStep(*make("cuda", GpuCodePredictor, None), small, snapshot, SHAPE.slots)
    snapshot.control[: SHAPE.slots] = torch.from_numpy(tables.control).to(device)
    snapshot.options[: SHAPE.slots] = torch.from_numpy(tables.options).to(device)
    padding_slot = torch.tensor([SHAPE.slots], device=device)
    padding_row = append_row_tags(torch.zeros(1, SHAPE.hidden, device=device), padding_slot, 0 * padding_slot)
    graphs = GraphedStep(step.make, padding_row, SHAPE.slots, sender.put)
    graphs.capture()
    generator = torch.Generator().manual_seed(3)
    for frame in range(5):
        rows = 3 - frame % 2
        hidden = torch.randn(rows, SHAPE.hidden, generator=generator)
        slots, positions = torch.arange(rows), torch.full((rows,), PREFIX + frame)
        tokens = reference(hidden, slots, positions)
        states = append_row_tags(hidden, slots, positions).to(device)
        assert graphs(states)[:, 0].tolist() == tokens.tolist()
    block_until(lambda: len(sent) == len(expected))
    assert sent == expected


@pytest.fixture
def sent() -> list[list[int]]:
    return []
