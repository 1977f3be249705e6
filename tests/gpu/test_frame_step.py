"""A step's input and its end in few kernels, against the plain ones on the same tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint import TalkerCheckpoint
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.ipc.slot_tables import Field, Option, SlotTables, TableShape
from voxgate.pipeline.talker.cuda.frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot
from voxgate.pipeline.talker.prompt import Prompt, cloned_voice_prompt, custom_voice_prompt
from voxgate.pipeline.talker.reference.embedding import InputEmbedding
from voxgate.pipeline.talker.reference.row_tags import append_row_tags
from voxgate.pipeline.talker.reference.sampling import Candidates
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews
from voxgate.pipeline.talker.reference.step import FrameStep

from ..pipeline.talker.small_model import small_checkpoint, small_weights
from .conftest import mapped_tables

SHAPE = TableShape(slots=3, prefix=24, text=6, frames=10, groups=4, hidden=24)
PADDING_ROW = SHAPE.slots


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


@pytest.mark.parametrize("layout", list(TextLayout))
def test_every_position_is_what_the_plain_embedding_makes_of_it(
    checkpoint: TalkerCheckpoint, device: torch.device, tables: SlotTables, layout: TextLayout
) -> None:
    small = small_checkpoint(checkpoint)
    weights = small_weights(small)
    vector = np.linspace(-1, 1, SHAPE.hidden, dtype=np.float32)
    put(tables, 0, custom_voice_prompt(small, "slt", "auto"), [7, 3, 11], closed=True)
    voice = ClonedVoice("ada", vector, "Hello.", np.array([[4, 3, 2, 1], [0, 5, 6, 7]]))
    put(tables, 1, cloned_voice_prompt(small, voice, "auto", [13, 14, 15, 16, 17], layout), [5, 9], closed=False)
    put(tables, 2, cloned_voice_prompt(small, ClonedVoice("ada", vector), "auto", (), layout), [5], closed=False)
    tables.options[:] = np.arange(tables.options.size).reshape(tables.options.shape)
    codes = torch.randint(small.codebook, (SHAPE.slots + 1, SHAPE.frames, 4), dtype=torch.int32)
    views = TableViews.of(tables)
    plain = InputEmbedding(weights, small, HostTables(views), codes)
    copies = TableSnapshot.of(SHAPE.slots, device)
    own = {name: tensor.to(device) for name, tensor in weights.items()}
    gpu = GpuInputEmbedding(InputEmbedding(own, small, HostTables(views), codes.to(device)), views, copies)
    slots = torch.tensor([slot for slot in range(3) for _ in range(18)])
    positions = torch.arange(18).repeat(3)
    made = gpu(slots.to(device), positions.to(device)).cpu()
    assert torch.allclose(made, plain(slots, positions), atol=1e-5)
    assert copies.control[:3, : len(Field)].tolist() == tables.control.tolist()
    assert copies.options[:3, : len(Option)].tolist() == tables.options.tolist()


def test_ids_that_no_session_has_are_nobody_s(
    checkpoint: TalkerCheckpoint, device: torch.device, tables: SlotTables
) -> None:
    small = small_checkpoint(checkpoint)
    weights = {name: tensor.to(device) for name, tensor in small_weights(small).items()}
    tables.control[:, Field.EPOCH] = 5
    copies = TableSnapshot.of(SHAPE.slots, device)
    codes = torch.zeros(SHAPE.slots + 1, SHAPE.frames, 4, dtype=torch.int32, device=device)
    views = TableViews.of(tables)
    gpu = GpuInputEmbedding(InputEmbedding(weights, small, HostTables(views), codes), views, copies)
    ids = torch.tensor([PADDING_ROW, 1000, -1], dtype=torch.int32, device=device)
    assert gpu(ids, torch.tensor([0, 3, 5000], device=device)).isfinite().all()
    assert copies.control[:, Field.EPOCH].tolist() == [0, 0, 0, 0]


class Predictor:
    """Completes frames with what depends on all that it is given, and remembers the noise."""

    def __init__(self) -> None:
        self.noise: list[list[list[float]]] = []

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        self.noise.append(noise.tolist())
        assert candidates.top_k is not None
        assert candidates.top_p is not None
        heat = candidates.inverse_temperature[:, 0] * 8 + candidates.top_k[:, 0] + candidates.top_p[:, 0] * 4
        return first[:, None] * 3 + heat.long()[:, None] + (hidden[:, :3] > 0).long()


class OfRows(Predictor):
    """As `Predictor`, for the plain step, which leaves out options that all rows share."""

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        shared = torch.full((len(first), 1), candidates.max_top_k)
        limit = shared if candidates.top_k is None else candidates.top_k
        top_p = torch.ones(len(first), 1) if candidates.top_p is None else candidates.top_p
        full = Candidates(candidates.inverse_temperature, candidates.greedy, limit, top_p, candidates.max_top_k)
        return super().__call__(hidden, first, full, noise)


def test_frames_records_and_tokens_are_those_of_the_plain_step(
    checkpoint: TalkerCheckpoint, device: torch.device
) -> None:
    """Through penalties, early and forced ends, a row that goes wrong, rows of nobody's, and a slot's next owner."""
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

    plain_codes = torch.zeros(SHAPE.slots + 1, SHAPE.frames, 4, dtype=torch.int32)
    plain_predictor, predictor = OfRows(), Predictor()
    host = HostTables(TableViews.of(tables))
    plain = FrameStep(head, plain_predictor, small, SHAPE, host, plain_codes, lambda _: None)
    codes = plain_codes.clone().to(device)
    source = FrameStep(head.to(device), predictor, small, SHAPE, host, codes, lambda _: None)
    copies = TableSnapshot.of(SHAPE.slots, device)
    gpu = GpuFrameStep(source, predictor, small, copies, SHAPE.slots)
    generator = torch.Generator().manual_seed(3)
    flags = set()
    for step in range(9):
        if step == 7:
            tables.control[0, Field.EPOCH] += 10
        copies.control[:PADDING_ROW, : len(Field)] = torch.from_numpy(tables.control).to(device)
        copies.options[:PADDING_ROW, : len(Option)] = torch.from_numpy(tables.options).to(device)
        frame = step if step < 7 else step - 7
        # The third session is held in the fourth step; the second's row comes first.
        slots = torch.tensor([1, 0] if step == 3 else [1, 0, 2])
        positions = torch.tensor([prefix + step, prefix + frame, prefix + step - (step > 3)][: len(slots)])
        hidden = torch.randn(len(slots), SHAPE.hidden, generator=generator) * 3
        if step == 6:
            hidden[2] = torch.nan
        tokens, records = plain.make(hidden, slots, positions)
        slots_there = torch.cat([slots, torch.tensor([PADDING_ROW])])
        rows = append_row_tags(torch.cat([hidden, hidden[:1]]), slots_there, torch.cat([positions, positions[:1]]))
        made_tokens, made = gpu.make(rows.to(device))
        live = records[:, 0] >= 0
        assert made_tokens[:-1, 0].tolist() == tokens.tolist()
        assert made[-1, 0] < 0
        assert (made[:-1, 0] < 0).tolist() == (~live).tolist()
        fine = live & ((records[:, 3] & 32) == 0)
        assert made[:-1].cpu()[fine].tolist() == records[fine].tolist()
        assert made[:-1, :4].cpu()[live].tolist() == records[live, :4].tolist()
        live_noise = np.array(predictor.noise[-1])[:-1][live.numpy()]
        assert live_noise.tolist() == np.array(plain_predictor.noise[-1])[live.numpy()].tolist()
        assert codes[:PADDING_ROW].tolist() == plain_codes[:PADDING_ROW].tolist()
        flags |= set(records[live, 3].tolist())
    assert flags >= {0, 3, 33}
