"""What the talker is taught: the first code, the phones behind it, and the other codes of some of the frames."""
# TODO-DOC The model's own codes as its history, for some spans of each batch. In use a talker hears what it sampled,
# TODO-DOC in training what was really said. Late in training, spans of frames are replaced with what the talker
# TODO-DOC itself samples there, all in parallel from one pass over the true history (Mihaylova & Martins, "Scheduled
# TODO-DOC Sampling for Transformers", 2019); the targets stay the true ones.

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import CODEBOOK_SIZE, CODEBOOKS, CODEC_EOS, PHONES, PHONES_PER_FRAME, TALKER
from .model import TalkerNetwork
from .packing import END

IGNORED = -100
_NOISE = 0.06
_FRAME_DROP = 0.04
_PHONE_WEIGHT = 0.4


class TalkerBatch(NamedTuple):
    """A batch with its frames looked up. Rows and length R, T.

    text, entry, position, document, target: int [R, T]. history, codes: int [R, T, 16], heard and to be said. phones:
    int [R, T, 8], this frame's and the next one's, or IGNORED. fed: bool [R, T], whether the
    history counts. picked: int [n], flat positions whose fifteen other codes are learnt.
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
    picked: Tensor


def make_talker_batch(fields: Tensor, codes: Tensor, phones: Tensor, picked: int) -> TalkerBatch:
    """fields: int32 [6, R, T] as packed. codes: int16 [frames, 16] and phones: uint8 [frames, 4], the store's."""
    text, history, entry, target, position, document = (field.long() for field in fields)
    has_frame = target >= 0
    frame = target.clamp(min=0)
    here = torch.where(has_frame[..., None], phones[frame].long(), IGNORED)
    # A document's last position has no frame, so a frame's neighbour on the right is the next one it says.
    goes_on = has_frame & torch.roll(has_frame, -1, 1)
    goes_on[:, -1] = False
    there = torch.where(goes_on[..., None], phones[torch.roll(frame, -1, 1)].long(), IGNORED)
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
        phones=torch.cat([here, there], -1),
        picked=flat[torch.randint(len(flat), (picked,), device=flat.device)],
    )


def disturb(history: Tensor) -> Tensor:
    """Some codes replaced at random, in each row at a rate of its own, up to six of a hundred."""
    rate = _NOISE * torch.rand(history.shape[0], 1, 1, device=history.device).clamp(min=0.05)
    noisy = torch.rand(history.shape, device=history.device) < rate
    return torch.where(noisy, torch.randint_like(history, CODEBOOK_SIZE), history)


def drop_frames(fed: Tensor) -> Tensor:
    """Some frames are not heard at all."""
    return fed & (torch.rand(fed.shape, device=fed.device) > _FRAME_DROP)


def residual_weights(device: torch.device) -> Tensor:
    """The early codebooks matter more to the ear than the last ones, which are nearly noise: mean one."""
    return torch.linspace(1.6, 0.4, CODEBOOKS - 1, device=device)


class TalkerLoss(nn.Module):
    """The talker and a phone head that is thrown away after training."""

    def __init__(self, talker: TalkerNetwork) -> None:
        super().__init__()
        self.talker = talker
        self.phone_head = nn.Linear(TALKER.hidden, 2 * PHONES_PER_FRAME * PHONES)

    def states(self, lesson: TalkerBatch) -> Tensor:
        """[R, T, hidden]"""
        x = self.talker.inputs(lesson.text, lesson.history, lesson.fed, lesson.entry)
        return self.talker.hidden(x, lesson.position, lesson.document)

    def forward(self, lesson: TalkerBatch) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = self.states(lesson)
        has_frame = lesson.target >= 0
        wanted = torch.where(has_frame, lesson.codes[..., 0], IGNORED)
        wanted = torch.where(lesson.target == END, CODEC_EOS, wanted)
        logits = self.talker.codec_head(hidden).float()
        first = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)
        right = ((logits.argmax(-1) == wanted) & has_frame).sum() / has_frame.sum()

        phone_logits = self.phone_head(hidden).float().unflatten(-1, (2 * PHONES_PER_FRAME, PHONES))
        phones = F.cross_entropy(phone_logits.flatten(0, 2), lesson.phones.flatten(), ignore_index=IGNORED)
        known = lesson.phones >= 0
        phones_right = ((phone_logits.argmax(-1) == lesson.phones) & known).sum() / known.sum()

        codes = lesson.codes.flatten(0, 1)[lesson.picked]
        others = self.talker.residual_logits(hidden.flatten(0, 1)[lesson.picked], codes).float()
        each = F.cross_entropy(others.flatten(0, 1), codes[:, 1:].flatten(), reduction="none")
        residual = each.view(-1, CODEBOOKS - 1).mean(0)
        loss = first + _PHONE_WEIGHT * phones + (residual * residual_weights(residual.device)).mean()
        told = {"first": first, "right": right, "phones": phones, "phones_right": phones_right, "residual": residual}
        return loss, {name: value.detach() for name, value in told.items()}


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


def own_codes(model: TalkerNetwork, hidden: Tensor, codes: Tensor, temperature: float, rounds: int = 2) -> Tensor:
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
