"""What the talker is taught: the first code, the phones behind it, and the other codes of some of the frames."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .packing import END
from .sizes import CODEBOOK_SIZE, CODEBOOKS, CODEC_EOS, PHONES, PHONES_PER_FRAME, TALKER
from .talker import Talker

IGNORED = -100
_NOISE = 0.06
_FRAME_DROP = 0.04
_PHONE_WEIGHT = 0.4


class Lesson(NamedTuple):
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


def make_lesson(fields: Tensor, codes: Tensor, phones: Tensor, picked: int) -> Lesson:
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
    return Lesson(
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

    def __init__(self, talker: Talker) -> None:
        super().__init__()
        self.talker = talker
        self.phone_head = nn.Linear(TALKER.hidden, 2 * PHONES_PER_FRAME * PHONES)

    def states(self, lesson: Lesson) -> Tensor:
        """[R, T, hidden]"""
        x = self.talker.inputs(lesson.text, lesson.history, lesson.fed, lesson.entry)
        return self.talker.hidden(x, lesson.position, lesson.document)

    def forward(self, lesson: Lesson) -> tuple[Tensor, dict[str, Tensor]]:
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
