"""The talker's input as a pure function of (slot, position): prefill, decode and recompute are one code path."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import TalkerCheckpoint
from .tables import Field, SlotTables, look_up


class InputEmbedding:
    """Sums a position's text-side and codec-side embeddings (Qwen3-TTS specification, sections B.2, B.4 and B.5).

    `codes`: int32 [slots + 1, frames, groups], written by the talker after each frame; its last row is a scratch row
    for batch rows that belong to nobody.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], checkpoint: TalkerCheckpoint, tables: SlotTables, codes: Tensor
    ) -> None:
        self.codes = codes
        self._ids = checkpoint.text_ids
        self._codec_bos = checkpoint.codec_ids.bos
        self._groups = checkpoint.groups
        # TE() of every token at once: applied at each position it would cost two matrix products a row.
        self._text = _project_text(weights)
        first = weights["talker.model.codec_embedding.weight"]
        rest = [weights[f"talker.code_predictor.model.codec_embedding.{g}.weight"] for g in range(self._groups - 1)]
        # One table for all groups, ending with a row of zeros for positions without a codec side.
        self._codec = torch.cat([first, *rest, first.new_zeros(1, first.shape[1])])
        self._nothing = len(self._codec) - 1
        starts = [0] + [len(first) + g * len(rest[0]) for g in range(self._groups - 1)]
        self._starts = torch.tensor(starts, device=first.device)
        self._control = torch.from_numpy(tables.control)
        self._text_ids = torch.from_numpy(tables.text)
        self._prefix = torch.from_numpy(tables.prefix)

    def __call__(self, slots: Tensor, positions: Tensor) -> Tensor:
        """`slots`, `positions`: int64 [n]. Returns [n, talker hidden]."""
        prefix_len, text_len = self._lengths(slots)
        frame = positions - prefix_len
        text_id = look_up(self._text_ids, slots, frame.clamp(0, self._text_ids.shape[1] - 1)).long()
        text_id = torch.where(frame < text_len, text_id, self._ids.pad)
        text_id = torch.where(frame == text_len, self._ids.eos, text_id)
        rows = self.codes[slots, (frame - 1).clamp(0, self.codes.shape[1] - 1)] + self._starts
        if bool((frame <= 0).any()):
            text_id, rows = self._prefill(slots, positions, frame, text_id, rows)
        return F.embedding(text_id, self._text) + F.embedding(rows, self._codec).sum(1)

    def _prefill(
        self, slots: Tensor, positions: Tensor, frame: Tensor, text_id: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Positions of the prefix, and the one where speech begins: they have at most one codec entry."""
        prefix = look_up(self._prefix, slots, positions.clamp(max=self._prefix.shape[1] - 1)).long()
        text_id = torch.where(frame < 0, prefix[:, 0], text_id)
        entry = torch.where(frame < 0, prefix[:, 1], self._codec_bos)
        entry = torch.where(entry < 0, self._nothing, entry)
        alone = torch.full_like(rows, self._nothing)
        alone[:, 0] = entry
        return text_id, torch.where((frame <= 0)[:, None], alone, rows)

    def _lengths(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        control = look_up(self._control, slots)
        return control[:, Field.PREFIX_LEN], control[:, Field.TEXT_LEN]


def _project_text(weights: Mapping[str, Tensor]) -> Tensor:
    x = weights["talker.model.text_embedding.weight"]
    for name, activate in (("fc1", F.silu), ("fc2", None)):
        layer = f"talker.text_projection.linear_{name}."
        x = F.linear(x, weights[layer + "weight"], weights[layer + "bias"])
        x = x if activate is None else activate(x)
    return x
