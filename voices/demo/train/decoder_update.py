"""One update of the codec decoder: spectra, and what the judges say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .codec_decoder import CodecDecoder
from .discriminators import Judges, judges_loss, maker_loss
from .files import half_precision
from .schedule import flat_then_linear, warm_up
from .sizes import CODEBOOKS, FRAME_SAMPLES
from .spectral_loss import envelope_loss, spectral_loss

_RATE, _RATE_JUDGED, _JUDGES_RATE = 8e-4, 4e-4, 3e-4
_SPECTRAL_WEIGHT, _ENVELOPE_WEIGHT = 15.0, 25.0
_ALL_LEVELS = 0.75
"""Share of windows that hear all sixteen codes; the rest hear four to fifteen, for the early ones to suffice."""


class DecoderTraining:
    """One update at a time, with or without the judges.

    `step` takes no decision and draws nothing outside the device, so that a CUDA graph can play it again.
    """

    def __init__(self, decoder: CodecDecoder, judges: Judges, device: torch.device, shown: int) -> None:
        cuda = device.type == "cuda"
        self.decoder, self._device, self._shown = decoder, device, shown
        self.judges = judges.to(device, memory_format=torch.channels_last)
        self._learnt = [p for p in decoder.parameters() if p.requires_grad]

        def optimizer(learnt: list[torch.nn.Parameter], weight_decay: float) -> torch.optim.AdamW:
            # On the device the rate is a number there: a graph reads what it is when it is played.
            rate = torch.zeros((), device=device) if cuda else 0.0
            return torch.optim.AdamW(
                learnt, rate, betas=(0.8, 0.98), weight_decay=weight_decay, fused=cuda, capturable=cuda
            )

        self._optimizer = optimizer(self._learnt, 1e-3)
        self._judges_optimizer = optimizer(list(self.judges.parameters()), 1e-2)

        # May be replaced with a compiled one.
        self.decode: Any = decoder

    def set_rates(self, share: float, update: int, *, judged: bool) -> None:
        """How fast the next updates learn; not at all before this is called. share: of the time that is gone."""
        rate = _RATE * warm_up(update, 200) * flat_then_linear(share, 0.4, 0.03)
        _set_rate(self._optimizer, min(rate, _RATE_JUDGED) if judged else rate)
        _set_rate(self._judges_optimizer, _JUDGES_RATE * flat_then_linear(share, 0.5, 0.03))

    def step(self, codes: Tensor, audio: Tensor, from_start: int, *, judged: bool) -> dict[str, Tensor]:
        """codes: int64 [batch, 16, T]. audio: float [batch, T * 1920].

        The first `from_start` windows begin with a sentence, with nothing before it as in use; the others lack what
        was before them, so their first frame is taken as it should be and teaches nothing.
        """
        batch = codes.shape[0]
        some = torch.randint(4, CODEBOOKS, (batch,), device=self._device)
        kept = some.masked_fill(torch.rand(batch, device=self._device) < _ALL_LEVELS, CODEBOOKS)
        with half_precision(self._device):
            made = self.decode(codes, kept).float()
        opening = torch.cat([made[:from_start, :FRAME_SAMPLES], audio[from_start:, :FRAME_SAMPLES]])
        made = torch.cat([opening, made[:, FRAME_SAMPLES:]], 1)
        told = {"spectral": spectral_loss(made, audio), "envelope": envelope_loss(made, audio)}
        loss = _SPECTRAL_WEIGHT * told["spectral"] + _ENVELOPE_WEIGHT * told["envelope"]
        if judged:
            self._judge_and_please(made, audio, told)
            loss = loss + told["fooling"] + told["likeness"]
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        told["gradient"] = torch.nn.utils.clip_grad_norm_(self._learnt, 5.0)
        self._optimizer.step()
        return {name: value.detach() for name, value in told.items()}

    def _judge_and_please(self, made: Tensor, audio: Tensor, told: dict[str, Tensor]) -> None:
        """The judges learn from a part of each window, then say what they think of it."""
        samples = self._shown * FRAME_SAMPLES
        first = torch.randint(0, made.shape[-1] - samples + 1, (made.shape[0], 1), device=self._device)
        part = first + torch.arange(samples, device=self._device)
        ours, theirs = made.gather(1, part), audio.gather(1, part)
        images = self.judges.images(torch.cat([theirs, ours.detach()]))
        with half_precision(self._device):
            told["judges"], seen_real = judges_loss(self.judges, images)
        self._judges_optimizer.zero_grad(set_to_none=True)
        told["judges"].backward()
        torch.nn.utils.clip_grad_norm_(self.judges.parameters(), 10.0)
        self._judges_optimizer.step()
        self.judges.requires_grad_(False)
        images = self.judges.images(ours)
        with half_precision(self._device):
            told["fooling"], told["likeness"] = maker_loss(self.judges, images, seen_real)
        self.judges.requires_grad_(True)


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
