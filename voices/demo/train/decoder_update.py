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
from .spectral_loss import spectral_loss

_RATE, _RATE_JUDGED, _JUDGES_RATE = 8e-4, 4e-4, 3e-4
_SPECTRAL_WEIGHT = 15.0
_ALL_LEVELS = 0.75
"""Share of windows that hear all sixteen codes; the rest hear four to fifteen, for the early ones to suffice."""


class DecoderTraining:
    """One update at a time, with or without the judges."""

    def __init__(self, decoder: CodecDecoder, judges: Judges, device: torch.device, shown: int) -> None:
        cuda = device.type == "cuda"
        self.decoder, self._device, self._shown = decoder, device, shown
        self.judges = judges.to(device, memory_format=torch.channels_last)
        self._learnt = [p for p in decoder.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._learnt, _RATE, betas=(0.8, 0.98), weight_decay=1e-3, fused=cuda)
        self._judges_optimizer = torch.optim.AdamW(
            self.judges.parameters(), _JUDGES_RATE, betas=(0.8, 0.98), fused=cuda
        )

        # Any of these may be replaced with a compiled one; spectra stay outside, the compiler knows no complex numbers.
        self.decode: Any = decoder
        self.judge: Any = judges_loss
        self.please: Any = maker_loss

    def update(
        self, codes: Tensor, audio: Tensor, from_start: int, share: float, update: int, *, judged: bool
    ) -> dict[str, Tensor]:
        """codes: int64 [batch, 16, T]. audio: float [batch, T * 1920]. share: of the time that is gone.

        The first `from_start` windows begin with a sentence, with nothing before it as in use; the others lack what
        was before them, so their first frame is taken as it should be and teaches nothing.
        """
        rate = _RATE * warm_up(update, 200) * flat_then_linear(share, 0.4, 0.03)
        for group in self._optimizer.param_groups:
            group["lr"] = min(rate, _RATE_JUDGED) if judged else rate
        batch = codes.shape[0]
        some = torch.randint(4, CODEBOOKS, (batch,), device=self._device)
        kept = torch.where(torch.rand(batch, device=self._device) < _ALL_LEVELS, CODEBOOKS, some)
        with half_precision(self._device):
            made = self.decode(codes, kept).float()
        opening = torch.cat([made[:from_start, :FRAME_SAMPLES], audio[from_start:, :FRAME_SAMPLES]])
        made = torch.cat([opening, made[:, FRAME_SAMPLES:]], 1)
        spectral = spectral_loss(made, audio)
        loss, told = _SPECTRAL_WEIGHT * spectral, {"spectral": spectral}
        if judged:
            self._judge_and_please(made, audio, share, told)
            loss = loss + told["fooling"] + told["likeness"]
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        told["gradient"] = torch.nn.utils.clip_grad_norm_(self._learnt, 5.0)
        self._optimizer.step()
        return {name: value.detach() for name, value in told.items()}

    def _judge_and_please(self, made: Tensor, audio: Tensor, share: float, told: dict[str, Tensor]) -> None:
        """The judges learn from a part of the windows, then say what they think of it."""
        for group in self._judges_optimizer.param_groups:
            group["lr"] = _JUDGES_RATE * flat_then_linear(share, 0.5, 0.03)
        samples = self._shown * FRAME_SAMPLES
        first = int(torch.randint(0, made.shape[-1] - samples + 1, ()))
        ours, theirs = made[:, first : first + samples], audio[:, first : first + samples]
        images = self.judges.images(torch.cat([theirs, ours.detach()]))
        with half_precision(self._device):
            told["judges"], seen_real = self.judge(self.judges, images)
        self._judges_optimizer.zero_grad(set_to_none=True)
        told["judges"].backward()
        torch.nn.utils.clip_grad_norm_(self.judges.parameters(), 10.0)
        self._judges_optimizer.step()
        self.judges.requires_grad_(False)
        images = self.judges.images(ours)
        with half_precision(self._device):
            told["fooling"], told["likeness"] = self.please(self.judges, images, seen_real)
        self.judges.requires_grad_(True)
