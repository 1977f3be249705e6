"""The talker's input as a pure function of (slot, position), so prefill, decode and recompute share one code path."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...ipc.slot_tables import SPEAKER, Field
from .slot_reader import SlotReader

PROJECTED_IDS = 8192
"""Text ids whose embeddings are projected at a time."""


class InputEmbedding:
    """Sums the text-side and codec-side embeddings of a position (`docs/qwen3_tts.md`, sections 4.1, 4.3 to 4.5, 5.3).

    `codes`: int32 [rows + 1, frames, groups], written by the talker after each frame; its last row receives the frames
    of padding rows. `GpuInputEmbedding` reads the same public tensors: `text` [text ids, hidden], the projected text
    embeddings; `codec` [entries + 1, hidden], the embedding tables of all groups and a last row of zeros, whose index
    is `no_entry`; `group_starts`, int64 [groups], where the table of each group starts in `codec`.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], checkpoint: TalkerCheckpoint, tables: SlotReader, codes: Tensor
    ) -> None:
        """`weights`: tensors by their published names, on the device and of the dtype to compute in."""
        self.codes = codes
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
        entries = self.codes[slots, (frame - 1).clamp(0, self.codes.shape[1] - 1)] + self.group_starts
        after_prompt = (frame > 0) & (token >= 0)
        if not tables.any(~after_prompt):
            return self._sum(text_id, entries)
        prefix = tables.prefix(slots, positions.clamp(max=tables.prefix_positions - 1)).long()
        text_id = torch.where(token < 0, prefix[:, 0], text_id)
        prompt = prefix[:, 1:]
        prompt_entries = torch.where(prompt < 0, self.no_entry, prompt + self.group_starts)
        entries = torch.where((frame <= 0)[:, None], prompt_entries, entries)
        embedded = self._sum(text_id, entries)
        has_speaker = (frame <= 0) & (prompt[:, 0] == SPEAKER)
        vectors = tables.speaker(slots, has_speaker)
        return embedded + has_speaker[:, None] * vectors.to(embedded.dtype)

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
