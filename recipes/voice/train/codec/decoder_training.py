"""One update of the codec decoder: spectra, and what the judges say."""
# TODO-DOC The decoder's update as a CUDA graph: thousands of small kernels, launched at once. Without it the GPU
# TODO-DOC waits for the processor, more so while the same processor makes the speech.

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import Tensor

from ..optimisation import flat_then_linear, warm_up
from ..run_files import half_precision
from ..sizes import CODEBOOKS, FRAME_SAMPLES
from .decoder import CodecDecoderNetwork
from .losses import Discriminators, discriminator_loss, envelope_loss, generator_loss, spectral_loss

_RATE, _RATE_JUDGED, _JUDGES_RATE = 8e-4, 4e-4, 3e-4
_SPECTRAL_WEIGHT, _ENVELOPE_WEIGHT = 15.0, 25.0
_ALL_LEVELS = 0.75
"""Share of windows that hear all sixteen codes; the rest hear four to fifteen, for the early ones to suffice."""


class DecoderTraining:
    """One update at a time, with or without the judges.

    `step` takes no decision and draws nothing outside the device, so that a CUDA graph can play it again.
    """

    def __init__(self, decoder: CodecDecoderNetwork, judges: Discriminators, device: torch.device, shown: int) -> None:
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
            told["judges"], seen_real = discriminator_loss(self.judges, images)
        self._judges_optimizer.zero_grad(set_to_none=True)
        told["judges"].backward()
        torch.nn.utils.clip_grad_norm_(self.judges.parameters(), 10.0)
        self._judges_optimizer.step()
        self.judges.requires_grad_(False)
        images = self.judges.images(ours)
        with half_precision(self._device):
            told["fooling"], told["likeness"] = generator_loss(self.judges, images, seen_real)
        self.judges.requires_grad_(True)


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


_WARM_UPS = 4


class GraphedSteps:
    """`DecoderTraining.step` for windows of one shape. Learning rates must be nought while it is made."""

    def __init__(self, training: DecoderTraining, windows: int, frames: int, from_start: int) -> None:
        device = next(training.decoder.parameters()).device
        self._codes = torch.randint(0, 512, (windows, CODEBOOKS, frames), device=device)
        self._audio = torch.randn(windows, frames * FRAME_SAMPLES, device=device) * 0.1
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        self._told: dict[bool, dict[str, Tensor]] = {}
        for judged in (False, True):
            # Libraries choose their kernels and compilers compile here, which cannot be recorded.
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UPS):
                    training.step(self._codes, self._audio, from_start, judged=judged)
            torch.cuda.current_stream().wait_stream(aside)
            torch.cuda.synchronize()
            gc.collect()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._told[judged] = training.step(self._codes, self._audio, from_start, judged=judged)
            self._graphs[judged] = graph

    def __call__(self, codes: Tensor, audio: Tensor, *, judged: bool) -> dict[str, Tensor]:
        """What the step told stays valid until the next call."""
        self._codes.copy_(codes)
        self._audio.copy_(audio)
        self._graphs[judged].replay()
        return self._told[judged]
