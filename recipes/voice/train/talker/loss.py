"""Losses of the talker, and scheduled sampling of its history.

The losses are those of the first code, of the phones in the frame and the next, and of the other codes of some frames.

In use, the talker's history is what it sampled; in training it is the true speech. So later in training, spans of
frames in the history are replaced by samples of the talker, all in parallel from one pass over the true history
(Mihaylova and Martins, "Scheduled Sampling for Transformers", 2019). The targets remain the true codes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import CODEBOOK_SIZE, CODEBOOKS, CODEC_EOS, PHONES, PHONES_PER_FRAME, TALKER
from .model import TalkerNetwork
from .packing import END

IGNORED = -100
_MAX_NOISE_RATE = 0.06
"""Largest share of codes in the history that are replaced at random."""
_FRAME_DROP_RATE = 0.04
"""Share of frames in the history that are left out."""
_PHONE_WEIGHT = 0.4


class TalkerBatch(NamedTuple):
    """A batch with the codes of its frames; R rows of T positions.

    text, entry, position, document, target: int [R, T] (see `PackedBatch`). history, codes: int [R, T, 16], the codes
    read and to be predicted. phones: int [R, T, 8], of the frame and the next, or IGNORED. fed: bool [R, T], whether
    `history` is used. residual_positions: int [n], flat positions whose fifteen other codes are predicted.
    """

    text: Tensor
    entry: Tensor
    position: Tensor
    document: Tensor
    target: Tensor
    fed: Tensor
    history: Tensor
    codes: Tensor
    phones: Tensor
    residual_positions: Tensor


def make_talker_batch(fields: Tensor, codes: Tensor, phones: Tensor, residual_frames: int) -> TalkerBatch:
    """Look up the frames of a packed batch.

    fields: int32 [6, R, T], of `PackedBatch`. codes: int16 [frames, 16] and phones: uint8 [frames, 4], of the store.
    residual_frames: number of frames whose other codes are predicted.
    """
    text, history, entry, target, position, document = (field.long() for field in fields)
    has_frame = target >= 0
    frame = target.clamp(min=0)
    this_frame = torch.where(has_frame[..., None], phones[frame].long(), IGNORED)
    # A document's last position has no frame, so a frame at the next position belongs to the same document.
    has_next = has_frame & torch.roll(has_frame, -1, 1)
    has_next[:, -1] = False
    next_frame = torch.where(has_next[..., None], phones[torch.roll(frame, -1, 1)].long(), IGNORED)
    flat = has_frame.flatten().nonzero()[:, 0]
    return TalkerBatch(
        text=text,
        entry=entry,
        position=position,
        document=document,
        target=target,
        fed=history >= 0,
        history=codes[history.clamp(min=0)].long(),
        codes=codes[frame].long(),
        phones=torch.cat([this_frame, next_frame], -1),
        residual_positions=flat[torch.randint(len(flat), (residual_frames,), device=flat.device)],
    )


def corrupt_history(history: Tensor) -> Tensor:
    """Replace some codes at random, with a random rate for each row of up to `_MAX_NOISE_RATE`."""
    rate = _MAX_NOISE_RATE * torch.rand(history.shape[0], 1, 1, device=history.device).clamp(min=0.05)
    noisy = torch.rand(history.shape, device=history.device) < rate
    return torch.where(noisy, torch.randint_like(history, CODEBOOK_SIZE), history)


def drop_frames(fed: Tensor) -> Tensor:
    """Leave some frames out of the history."""
    return fed & (torch.rand(fed.shape, device=fed.device) > _FRAME_DROP_RATE)


def residual_weights(device: torch.device) -> Tensor:
    """Weights of the fifteen codes, of mean 1: the last codes are nearly noise."""
    return torch.linspace(1.6, 0.4, CODEBOOKS - 1, device=device)


class TalkerLoss(nn.Module):
    """The talker with a phone classifier that is discarded after training."""

    def __init__(self, talker: TalkerNetwork) -> None:
        super().__init__()
        self.talker = talker
        self.phone_head = nn.Linear(TALKER.hidden, 2 * PHONES_PER_FRAME * PHONES)

    def states(self, batch: TalkerBatch) -> Tensor:
        """Hidden states, [R, T, hidden]."""
        x = self.talker.inputs(batch.text, batch.history, batch.fed, batch.entry)
        return self.talker.hidden(x, batch.position, batch.document)

    def forward(self, batch: TalkerBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The total loss, and its parts and accuracies for the log."""
        hidden = self.states(batch)
        has_frame = batch.target >= 0
        wanted = torch.where(has_frame, batch.codes[..., 0], IGNORED)
        wanted = torch.where(batch.target == END, CODEC_EOS, wanted)
        logits = self.talker.codec_head(hidden).float()
        first = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)
        right = ((logits.argmax(-1) == wanted) & has_frame).sum() / has_frame.sum()

        phone_logits = self.phone_head(hidden).float().unflatten(-1, (2 * PHONES_PER_FRAME, PHONES))
        phones = F.cross_entropy(phone_logits.flatten(0, 2), batch.phones.flatten(), ignore_index=IGNORED)
        is_labelled = batch.phones >= 0
        phones_right = ((phone_logits.argmax(-1) == batch.phones) & is_labelled).sum() / is_labelled.sum()

        codes = batch.codes.flatten(0, 1)[batch.residual_positions]
        residual_logits = self.talker.residual_logits(hidden.flatten(0, 1)[batch.residual_positions], codes).float()
        residual_losses = F.cross_entropy(residual_logits.flatten(0, 1), codes[:, 1:].flatten(), reduction="none")
        residual = residual_losses.view(-1, CODEBOOKS - 1).mean(0)
        loss = first + _PHONE_WEIGHT * phones + (residual * residual_weights(residual.device)).mean()
        parts = {"first": first, "right": right, "phones": phones, "phones_right": phones_right, "residual": residual}
        return loss, {name: value.detach() for name, value in parts.items()}


SPAN = 8
"""Consecutive positions that are replaced together."""


def choose_spans(has_frame: Tensor, spans: int) -> tuple[Tensor, Tensor]:
    """Choose `spans` random spans of positions with a frame.

    has_frame: bool [rows, T], T a multiple of SPAN. Returns flat positions, int64 [spans * SPAN], and whether each
    has a frame.
    """
    blocks = has_frame.view(-1, SPAN)
    score = torch.rand(blocks.shape[0], device=blocks.device) + blocks.any(1)
    first = score.topk(spans).indices * SPAN
    positions = (first[:, None] + torch.arange(SPAN, device=blocks.device)).flatten()
    return positions, has_frame.flatten()[positions]


def sample(logits: Tensor, temperature: float) -> Tensor:
    """Sample from logits, float [..., entries] -> int64 [...], by the Gumbel-max trick: shapes stay static."""
    noise = -torch.empty_like(logits).exponential_().log()
    return (logits / temperature + noise).argmax(-1)


def sample_codes(model: TalkerNetwork, hidden: Tensor, codes: Tensor, temperature: float, rounds: int = 2) -> Tensor:
    """Sample frames from states [n, hidden], with true codes [n, 16] -> int64 [n, 16].

    Samples the first code, then the others in parallel, first given the true codes, then given the sampled ones.
    """
    first = sample(model.codec_head(hidden).float()[:, :CODEBOOK_SIZE], temperature)
    sampled = torch.cat([first[:, None], codes[:, 1:]], 1)
    for _ in range(rounds):
        sampled = torch.cat([first[:, None], sample(model.residual_logits(hidden, sampled).float(), temperature)], 1)
    return sampled


def replace_history(history: Tensor, fed: Tensor, positions: Tensor, usable: Tensor, sampled: Tensor) -> Tensor:
    """Replace the history after `positions` by frames sampled there.

    history: int [rows, T, 16]. fed: bool [rows, T]. positions: int [n]. usable: bool [n]. sampled: int [n, 16].
    """
    rows, length = fed.shape
    replaced = history.flatten(0, 1).clone()
    reader = (positions + 1).clamp(max=rows * length - 1)
    # A fed position reads the frame before it, in the same document, because documents begin with prompts.
    chosen = usable & fed.flatten()[reader]
    replaced[reader] = torch.where(chosen[:, None], sampled, replaced[reader])
    return replaced.view_as(history)
