"""`GpuInputEmbedding` and `GpuFrameStep` against the reference on the same tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.ipc.slot_tables import Field, Option, SlotTables, TableShape
from voxgate.pipeline.talker.cuda.frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot
from voxgate.pipeline.talker.prompt import Prompt, cloned_voice_prompt, custom_voice_prompt
from voxgate.pipeline.talker.reference.embedding import FrameHistory, InputEmbedding
from voxgate.pipeline.talker.reference.row_tags import append_row_tags
from voxgate.pipeline.talker.reference.sampling import Candidates
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews
from voxgate.pipeline.talker.reference.step import FrameStep

from ..pipeline.talker.small_model import small_checkpoint, small_weights
from .conftest import mapped_tables

SHAPE = TableShape(slots=3, prefix=24, text=6, frames=10, groups=4, hidden=24)
PADDING_SLOT = SHAPE.slots


@pytest.fixture
def tables() -> Iterator[SlotTables]:
    with mapped_tables(SHAPE) as tables:
        yield tables


def put(tables: SlotTables, slot: int, prompt: Prompt, text: list[int], closed: bool) -> None:
    codec = prompt.codec(len(text))
    tables.prefix[slot, : len(prompt.text), 0] = prompt.text
    tables.prefix[slot, : len(codec), 1:] = codec
    tables.text[slot, : len(text)] = text
    if prompt.speaker_vector is not None:
        tables.speaker[slot] = prompt.speaker_vector
    row = tables.control[slot]
    row[Field.PREFIX_LEN], row[Field.TEXT_LEAD] = len(codec) - 1, len(codec) - 1 - len(prompt.text)
    row[Field.TEXT_LEN], row[Field.CLOSED] = len(text), closed
    row[Field.EPOCH] = slot + 7


def continue_behind(tables: SlotTables, slot: int, codes: Tensor) -> None:
    """Has the slot's generation continue frames, [n, groups], that were made in another slot."""
    row = tables.control[slot]
    row[Field.PAST_FRAMES] = len(codes)
    begin = row[Field.PREFIX_LEN] + 1
    tables.prefix[slot, begin : begin + len(codes), 1:] = codes.numpy()


@pytest.mark.parametrize("layout", list(TextLayout))
def test_embedding_of_every_position_equals_the_reference(
    checkpoint: TalkerCheckpoint, device: torch.device, tables: SlotTables, layout: TextLayout
) -> None:
    small = small_checkpoint(checkpoint)
    weights = small_weights(small)
    vector = np.linspace(-1, 1, SHAPE.hidden, dtype=np.float32)
    put(tables, 0, custom_voice_prompt(small, "heart", "auto"), [7, 3, 11], closed=True)
    voice = ClonedVoice("ada", vector, "Hello.", np.array([[4, 3, 2, 1], [0, 5, 6, 7]]))
    put(tables, 1, cloned_voice_prompt(small, voice, "auto", [13, 14, 15, 16, 17], layout), [5, 9], closed=False)
    put(tables, 2, cloned_voice_prompt(small, ClonedVoice("ada", vector), "auto", (), layout), [5], closed=False)
    tables.options[:] = np.arange(tables.options.size).reshape(tables.options.shape)
    for slot, past in ((0, 3), (1, 1)):
        continue_behind(tables, slot, torch.randint(small.codebook, (past, 4)))
    history = FrameHistory.zeros(SHAPE, small.codebook)
    history.codes[:] = torch.randint(small.codebook, history.codes.shape, dtype=torch.int32)
    own_history = FrameHistory(history.codes.to(device), history.sampled.clone().to(device))
    views = TableViews.of(tables)
    reference = InputEmbedding(weights, small, HostTables(views), history)
    snapshot = TableSnapshot.of(SHAPE.slots, device)
    own = {name: tensor.to(device) for name, tensor in weights.items()}
    gpu = GpuInputEmbedding(InputEmbedding(own, small, HostTables(views), own_history), views, snapshot)
    slots = torch.tensor([slot for slot in range(3) for _ in range(SHAPE.prefix)])
    positions = torch.arange(SHAPE.prefix).repeat(3)
    embedded = gpu(slots.to(device), positions.to(device)).cpu()
    assert torch.allclose(embedded, reference(slots, positions), atol=1e-5)
    assert snapshot.control[:3].tolist() == tables.control.tolist()
    assert snapshot.options[:3].tolist() == tables.options.tolist()
    assert own_history.sampled[:PADDING_SLOT].tolist() == history.sampled[:PADDING_SLOT].tolist()
    assert history.sampled[:PADDING_SLOT].any(1).tolist() == [True, True, False]


def test_unknown_ids_belong_to_the_padding_slot(
    checkpoint: TalkerCheckpoint, device: torch.device, tables: SlotTables
) -> None:
    small = small_checkpoint(checkpoint)
    weights = {name: tensor.to(device) for name, tensor in small_weights(small).items()}
    tables.control[:, Field.EPOCH] = 5
    snapshot = TableSnapshot.of(SHAPE.slots, device)
    history = FrameHistory.zeros(SHAPE, small.codebook, device)
    views = TableViews.of(tables)
    gpu = GpuInputEmbedding(InputEmbedding(weights, small, HostTables(views), history), views, snapshot)
    ids = torch.tensor([PADDING_SLOT, 1000, -1], dtype=torch.int32, device=device)
    assert gpu(ids, torch.tensor([0, 3, 5000], device=device)).isfinite().all()
    assert snapshot.control[:, Field.EPOCH].tolist() == [0, 0, 0, 0]


class FakePredictor:
    """Completes frames with codes that depend on every argument, and records the noise."""

    def __init__(self) -> None:
        self.noise: list[list[list[float]]] = []

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        self.noise.append(noise.tolist())
        assert candidates.top_k is not None
        assert candidates.top_p is not None
        options = candidates.inverse_temperature[:, 0] * 8 + candidates.top_k[:, 0] + candidates.top_p[:, 0] * 4
        return first[:, None] * 3 + options.long()[:, None] + (hidden[:, :3] > 0).long()


class FakeReferencePredictor(FakePredictor):
    """The same for the reference step, whose candidates leave out options that all rows share."""

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        shared = torch.full((len(first), 1), candidates.max_top_k)
        top_k = shared if candidates.top_k is None else candidates.top_k
        top_p = torch.ones(len(first), 1) if candidates.top_p is None else candidates.top_p
        full = Candidates(candidates.inverse_temperature, candidates.greedy, top_k, top_p, candidates.max_top_k)
        return super().__call__(hidden, first, full, noise)


def test_frames_records_and_tokens_equal_the_reference_step(checkpoint: TalkerCheckpoint, device: torch.device) -> None:
    """With penalties, early and forced ends, a failing row, padding rows, and a new owner of a slot."""
    small = small_checkpoint(checkpoint)
    weights = small_weights(small)
    tables, _ = SlotTables.create(SHAPE)
    prefix = 5
    for slot, (cap, temperature, early) in enumerate([(4, 0.9, 0), (20, 0.0, 1), (20, 1.2, 0)]):
        row = tables.control[slot]
        row[Field.EPOCH], row[Field.PREFIX_LEN], row[Field.TEXT_LEN] = slot + 1, prefix, 2
        row[Field.CLOSED], row[Field.FRAME_CAP], row[Field.SEED], row[Field.TOP_K] = slot != 2, cap, slot * 99, slot * 4
        row[Field.PREDICTOR_TOP_K], row[Field.EARLY_END] = 3 * slot, early
        tables.options[slot, list(Option)] = (temperature, 0.9, 1.0 + slot / 4, slot * 0.5, 1.0 - slot / 10)
    head, codec_table = weights["talker.codec_head.weight"], weights["talker.model.codec_embedding.weight"]
    assert len(codec_table) > small.codebook

    reference_history = FrameHistory.zeros(SHAPE, small.codebook)
    history = FrameHistory.zeros(SHAPE, small.codebook, device)
    reference_predictor, predictor = FakeReferencePredictor(), FakePredictor()
    host = HostTables(TableViews.of(tables))
    reference = FrameStep(head, reference_predictor, small, SHAPE, host, reference_history, lambda _: None)
    source = FrameStep(head.to(device), predictor, small, SHAPE, host, history, lambda _: None)
    snapshot = TableSnapshot.of(SHAPE.slots, device)
    gpu = GpuFrameStep(source, predictor, small, snapshot, SHAPE.slots)
    generator = torch.Generator().manual_seed(3)
    flags = set()
    for step in range(9):
        if step == 7:
            tables.control[0, Field.EPOCH] += 10
        snapshot.control[:PADDING_SLOT] = torch.from_numpy(tables.control).to(device)
        snapshot.options[:PADDING_SLOT] = torch.from_numpy(tables.options).to(device)
        frame = step if step < 7 else step - 7
        # In the fourth step the third slot is held back; the second slot's row comes first.
        slots = torch.tensor([1, 0] if step == 3 else [1, 0, 2])
        positions = torch.tensor([prefix + step, prefix + frame, prefix + step - (step > 3)][: len(slots)])
        hidden = torch.randn(len(slots), SHAPE.hidden, generator=generator) * 3
        if step == 6:
            hidden[2] = torch.nan
        tokens, records = reference.make(hidden, slots, positions)
        padded_slots = torch.cat([slots, torch.tensor([PADDING_SLOT])])
        rows = append_row_tags(torch.cat([hidden, hidden[:1]]), padded_slots, torch.cat([positions, positions[:1]]))
        gpu_tokens, gpu_records = gpu.make(rows.to(device))
        live = records[:, 0] >= 0
        assert gpu_tokens[:-1, 0].tolist() == tokens.tolist()
        assert gpu_records[-1, 0] < 0
        assert (gpu_records[:-1, 0] < 0).tolist() == (~live).tolist()
        succeeded = live & ((records[:, 3] & 32) == 0)
        assert gpu_records[:-1].cpu()[succeeded].tolist() == records[succeeded].tolist()
        assert gpu_records[:-1, :4].cpu()[live].tolist() == records[live, :4].tolist()
        live_noise = np.array(predictor.noise[-1])[:-1][live.numpy()]
        assert live_noise.tolist() == np.array(reference_predictor.noise[-1])[live.numpy()].tolist()
        assert history.codes[:PADDING_SLOT].tolist() == reference_history.codes[:PADDING_SLOT].tolist()
        flags |= set(records[live, 3].tolist())
    assert flags >= {0, 3, 33}
