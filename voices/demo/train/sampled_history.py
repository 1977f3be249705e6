"""The model's own codes as its history, for some spans of each batch.

In use a talker hears what it sampled, in training what was really said. Late in training, spans of frames are replaced
with what the talker itself samples there, all in parallel from one pass over the true history (Mihaylova & Martins,
"Scheduled Sampling for Transformers", 2019); the targets stay the true ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .sizes import CODEBOOK_SIZE
from .talker import Talker

SPAN = 8
"""Positions that are replaced together."""


def choose_spans(has_frame: Tensor, spans: int) -> tuple[Tensor, Tensor]:
    """Random spans among the positions that have a frame to say, as many in every batch.

    has_frame: bool [rows, T], T a multiple of SPAN. Returns flat positions, int64 [spans * SPAN], and whether each
    has a frame.
    """
    blocks = has_frame.view(-1, SPAN)
    score = torch.rand(blocks.shape[0], device=blocks.device) + blocks.any(1)
    first = score.topk(spans).indices * SPAN
    positions = (first[:, None] + torch.arange(SPAN, device=blocks.device)).flatten()
    return positions, has_frame.flatten()[positions]


def sample(logits: Tensor, temperature: float) -> Tensor:
    """float [..., entries] -> int64 [...], by the Gumbel trick: shapes stay fixed."""
    noise = -torch.empty_like(logits).exponential_().log()
    return (logits / temperature + noise).argmax(-1)


def own_codes(model: Talker, hidden: Tensor, codes: Tensor, temperature: float, rounds: int = 2) -> Tensor:
    """What the talker would have said: states [n, hidden] and true codes [n, 16] -> sampled codes int64 [n, 16].

    The first code is sampled; the others in parallel given the true ones, then once more given those sampled.
    """
    first = sample(model.codec_head(hidden).float()[:, :CODEBOOK_SIZE], temperature)
    said = torch.cat([first[:, None], codes[:, 1:]], 1)
    for _ in range(rounds):
        said = torch.cat([first[:, None], sample(model.residual_logits(hidden, said).float(), temperature)], 1)
    return said


def replace_history(history: Tensor, fed: Tensor, positions: Tensor, usable: Tensor, said: Tensor) -> Tensor:
    """The history with what was said at `positions` heard one position later.

    history: int [rows, T, 16]. fed: bool [rows, T]. positions: int [n]. usable: bool [n]. said: int [n, 16].
    """
    rows, length = fed.shape
    own = history.flatten(0, 1).clone()
    heard = (positions + 1).clamp(max=rows * length - 1)
    # A position that is fed hears the frame said just before it, in the same document: rows begin with prompts.
    take = usable & fed.flatten()[heard]
    own[heard] = torch.where(take[:, None], said, own[heard])
    return own.view_as(history)
