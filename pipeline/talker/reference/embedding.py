"""The talker's input as a pure function of (slot, position), so prefill, decode and recompute share one code path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...ipc.slot_tables import SPEAKER, Field, TableShape
from .slot_reader import SlotReader

PROJECTED_IDS = 8192
"""Text ids whose embeddings are projected at a time."""


@dataclass(frozen=True, slots=True)
class FrameHistory:
    """What later steps need of the frames of each slot; the last row is for padding rows.

    `codes`: int32 [rows + 1, frames, groups], of frames made in the slot. `sampled`: int32 [rows + 1, codebook + 1],
    the epoch of the generation that has sampled an id of codebook 0 last, so that nothing is cleared between two; it
    includes frames that were made in another slot (`Field.PAST_FRAMES`).
    """

    codes: Tensor
    sampled: Tensor

    @classmethod
    def zeros(cls, shape: TableShape, codebook: int, device: torch.device | None = None) -> Self:
        """No frames, for `codebook` ids of codebook 0."""
        codes = torch.zeros(shape.rows + 1, shape.frames, shape.groups, dtype=torch.int32, device=device)
        return cls(codes, torch.zeros(shape.rows + 1, codebook + 1, dtype=torch.int32, device=device))


class InputEmbedding:
    """Sums the text-side and codec-side embeddings of a position (`docs/qwen3_tts.md`, sections 4.1, 4.3 to 4.5, 5.3).

    `history`: codes are written by the talker after each frame; of frames made in another slot, which follow the prompt
    in the tables, their positions note the sampled ids here. `GpuInputEmbedding` uses the same public tensors: `text`
    [text ids, hidden], the projected text embeddings; `codec` [entries + 1, hidden], the embedding tables of all groups
    and a last row of zeros, whose index is `no_entry`; `group_starts`, int64 [groups], where the table of each group
    starts in `codec`.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], checkpoint: TalkerCheckpoint, tables: SlotReader, history: FrameHistory
    ) -> None:
        """`weights`: tensors by their published names, on the device and of the dtype to compute in."""
        self.history = history
        self.ids = checkpoint.text_ids
        self._tables = tables
        groups = checkpoint.groups
        # Projecting every token once avoids two matrix products for each row of each step.
        self.text = _project_text(weights)
        first = weights["talker.model.codec_embedding.weight"]
        rest = [weights[f"talker.code_predictor.model.codec_embedding.{g}.weight"] for g in range(groups - 1)]
        self.codec = torch.cat([first, *rest, first.new_zeros(1, first.shape[1])])
        self.no_entry = len(self.codec) - 1
        starts = [0] + [len(first) + g * len(rest[0]) for g in range(groups - 1)]
        self.group_starts = torch.tensor(starts, device=first.device)

    def __call__(self, slots: Tensor, positions: Tensor) -> Tensor:
        """The input of each row, [n, talker hidden]. `slots`, `positions`: int64 [n]."""
        tables = self._tables
        control = tables.control(slots)
        text_len = control[:, Field.TEXT_LEN]
        frame = positions - control[:, Field.PREFIX_LEN]
        token = frame + control[:, Field.TEXT_LEAD]
        text_id = tables.text(slots, token.clamp(0, tables.text_positions - 1)).long()
        text_id = torch.where(token < text_len, text_id, self.ids.pad)
        text_id = torch.where(token == text_len, self.ids.eos, text_id)
        codes = self.history.codes
        entries = codes[slots, (frame - 1).clamp(0, codes.shape[1] - 1)] + self.group_starts
        past = control[:, Field.PAST_FRAMES]
        after_prompt = (frame > past) & (token >= 0)
        if not tables.any(~after_prompt):
            return self._sum(text_id, entries)
        prefix = tables.prefix(slots, positions.clamp(max=tables.prefix_positions - 1)).long()
        text_id = torch.where(token < 0, prefix[:, 0], text_id)
        prompt = prefix[:, 1:]
        prompt_entries = torch.where(prompt < 0, self.no_entry, prompt + self.group_starts)
        entries = torch.where((frame <= past)[:, None], prompt_entries, entries)
        embedded = self._sum(text_id, entries)
        self._note_sampled(slots, prompt[:, 0], (frame > 0) & (frame <= past), control[:, Field.EPOCH])
        has_speaker = (frame <= 0) & (prompt[:, 0] == SPEAKER)
        vectors = tables.speaker(slots, has_speaker)
        return embedded + has_speaker[:, None] * vectors.to(embedded.dtype)

    def _note_sampled(self, slots: Tensor, ids: Tensor, rows: Tensor, epochs: Tensor) -> None:
        """Notes `ids` as sampled in the generation of each of `rows`, bool [n]."""
        sampled = self.history.sampled
        sampled[torch.where(rows, slots, len(sampled) - 1), ids.clamp(0, sampled.shape[1] - 1)] = epochs.int()

    def _sum(self, text_id: Tensor, entries: Tensor) -> Tensor:
        return F.embedding(text_id, self.text) + F.embedding(entries, self.codec).sum(1)


def _project_text(weights: Mapping[str, Tensor]) -> Tensor:
    """Text embeddings of all ids through the text projection: fc2(silu(fc1(x)))."""
    embedding = weights["talker.model.text_embedding.weight"]
    up, up_bias, down, down_bias = (
        weights[f"talker.text_projection.linear_{name}"]
        for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    )
    projected = embedding.new_empty(len(embedding), len(down))
    # In pieces: the intermediate results of all ids would take more memory than the model leaves on a small GPU.
    for begin in range(0, len(embedding), PROJECTED_IDS):
        ids = slice(begin, begin + PROJECTED_IDS)
        projected[ids] = F.linear(F.silu(F.linear(embedding[ids], up, up_bias)), down, down_bias)
    return projected
