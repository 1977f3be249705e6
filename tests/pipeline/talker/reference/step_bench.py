"""A `FrameStep` whose logits and predictor the tests control."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.ipc.records import HEADER, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field, Option, SlotTables, TableShape
from voxgate.pipeline.talker.reference.embedding import FrameHistory
from voxgate.pipeline.talker.reference.sampling import Candidates
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews
from voxgate.pipeline.talker.reference.step import FrameStep

from ..small_model import small_checkpoint

SHAPE = TableShape(slots=4, prefix=8, text=16, frames=20, groups=4, hidden=21)
PREFIX = 5
BOOK = 20
END = BOOK


class FakePredictor:
    """Completes a frame with first code c by c + 1, c + 2, c + 3."""

    def __init__(self) -> None:
        self.noise: list[Tensor] = []

    def __call__(self, _hidden: Tensor, first: Tensor, _candidates: Candidates, noise: Tensor) -> Tensor:
        self.noise.append(noise)
        return first[:, None] + torch.arange(1, 4)


@dataclass(frozen=True)
class FrameRecord:
    slot: int
    epoch: int
    frame: int
    flags: int
    codes: list[int]


class StepBench:
    """A step over real tables whose logits the test writes into the hidden states.

    The first 21 hidden channels are the logits of codebook 0 and, last, of end of speech.
    """

    def __init__(self, checkpoint: TalkerCheckpoint) -> None:
        self.checkpoint = small_checkpoint(checkpoint, hidden=BOOK + 1)
        self.tables, _ = SlotTables.create(SHAPE)
        # As in a free slot, whose row keeps the values of its last owner except for the epoch.
        self.tables.control[:, Field.PREFIX_LEN] = PREFIX
        self.history = FrameHistory.zeros(SHAPE, BOOK)
        self.codes = self.history.codes
        self.sent: list[FrameRecord] = []
        self.predictor = FakePredictor()
        head = torch.zeros(self.checkpoint.codec_vocab, BOOK + 1)
        head[:BOOK, :BOOK] = torch.eye(BOOK)
        # The suppressed ids would always win if they were not left out.
        head[BOOK:] = 1000
        head[self.checkpoint.codec_ids.eos] = 0
        head[self.checkpoint.codec_ids.eos, BOOK] = 1
        reader = HostTables(TableViews.of(self.tables))
        self.step = FrameStep(head, self.predictor, self.checkpoint, SHAPE, reader, self.history, self._report)

    def _report(self, message: bytes) -> None:
        for row in unpack_records(message, 4).tolist():
            self.sent.append(FrameRecord(*row[:HEADER], row[HEADER:]))

    def own(self, slot: int, epoch: int, *, tokens: int = 1, closed: bool = True, cap: int = 15) -> None:
        """Give a slot to an owner with greedy sampling and no penalty."""
        row = self.tables.control[slot]
        row[:] = 0
        row[Field.EPOCH], row[Field.PREFIX_LEN], row[Field.TEXT_LEN] = epoch, PREFIX, tokens
        row[Field.CLOSED], row[Field.FRAME_CAP], row[Field.SEED] = closed, cap, epoch
        self.tables.options[slot, list(Option)] = (0.0, 1.0, 1.0, 0.0, 1.0)

    def run(self, *rows: tuple[int, int, list[int]]) -> list[int]:
        """Run one step. Each row: slot, frame, and ids from most to least likely (BOOK is end of speech)."""
        hidden = torch.full((len(rows), BOOK + 1), -9.0)
        for n, (_, _, ranking) in enumerate(rows):
            for place, code in enumerate(ranking):
                hidden[n, code] = 5.0 - place
        slots, frames = (torch.tensor([row[k] for row in rows]) for k in (0, 1))
        return self.step(hidden, slots, frames + PREFIX).tolist()

    def run_frames(self, slot: int, frames: int) -> None:
        for frame in range(frames):
            self.run((slot, frame, [frame]))
