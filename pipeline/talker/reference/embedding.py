"""The talker's input as a pure function of (slot, position): prefill, decode and recompute are one code path."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoint import TalkerCheckpoint
from ...ipc.slot_tables import Field, SlotTables
from ..prompt import SPEAKER
from .slot_reader import any_of, look_up


class InputEmbedding:
    """Sums a position's text-side and codec-side embeddings (Qwen3-TTS specification, sections B.2, B.4 and B.5).

    `codes`: int32 [slots + 1, frames, groups], written by the talker after each frame; its last row is a scratch row
    for batch rows that belong to nobody. What it is made of is there for `GpuInputEmbedding`, which is made of the same.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], checkpoint: TalkerCheckpoint, tables: SlotTables, codes: Tensor
    ) -> None:
        self.codes = codes
        self.ids = checkpoint.text_ids
        self._groups = checkpoint.groups
        # TE() of every token at once: applied at each position it would cost two matrix products a row.
        self.text = _project_text(weights)
        first = weights["talker.model.codec_embedding.weight"]
        rest = [weights[f"talker.code_predictor.model.codec_embedding.{g}.weight"] for g in range(self._groups - 1)]
        # One table for all groups, ending with a row of zeros for positions without a codec side.
        self.codec = torch.cat([first, *rest, first.new_zeros(1, first.shape[1])])
        self.nothing = len(self.codec) - 1
        starts = [0] + [len(first) + g * len(rest[0]) for g in range(self._groups - 1)]
        self.starts = torch.tensor(starts, device=first.device)
        self.control = torch.from_numpy(tables.control)
        self.options = torch.from_numpy(tables.options)
        self.text_ids = torch.from_numpy(tables.text)
        self.prefix = torch.from_numpy(tables.prefix)
        self.speaker = torch.from_numpy(tables.speaker)

    def __call__(self, slots: Tensor, positions: Tensor) -> Tensor:
        """`slots`, `positions`: int64 [n]. Returns [n, talker hidden]."""
        control = look_up(self.control, slots)
        text_len = control[:, Field.TEXT_LEN]
        frame = positions - control[:, Field.PREFIX_LEN]
        token = frame + control[:, Field.TEXT_LEAD]
        text_id = look_up(self.text_ids, slots, token.clamp(0, self.text_ids.shape[1] - 1)).long()
        text_id = torch.where(token < text_len, text_id, self.ids.pad)
        text_id = torch.where(token == text_len, self.ids.eos, text_id)
        rows = self.codes[slots, (frame - 1).clamp(0, self.codes.shape[1] - 1)] + self.starts
        spoken = (frame > 0) & (token >= 0)
        if not any_of(~spoken):
            return self._sum(text_id, rows)
        prefix = look_up(self.prefix, slots, positions.clamp(max=self.prefix.shape[1] - 1)).long()
        text_id = torch.where(token < 0, prefix[:, 0], text_id)
        entries = prefix[:, 1:]
        prompted = torch.where(entries < 0, self.nothing, entries + self.starts)
        rows = torch.where((frame <= 0)[:, None], prompted, rows)
        made = self._sum(text_id, rows)
        named = (frame <= 0) & (entries[:, 0] == SPEAKER)
        # A vector is thousands of bytes: a GPU, which reads it over the bus, must not for those who need none.
        vectors = look_up(self.speaker, torch.where(named, slots, -1))
        return made + named[:, None] * vectors.to(made.dtype)

    def _sum(self, text_id: Tensor, rows: Tensor) -> Tensor:
        return F.embedding(text_id, self.text) + F.embedding(rows, self.codec).sum(1)


def _project_text(weights: Mapping[str, Tensor]) -> Tensor:
    x = weights["talker.model.text_embedding.weight"]
    for name, activate in (("fc1", F.silu), ("fc2", None)):
        layer = f"talker.text_projection.linear_{name}."
        x = F.linear(x, weights[layer + "weight"], weights[layer + "bias"])
        x = x if activate is None else activate(x)
    return x
