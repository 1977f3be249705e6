"""One update of the codec decoder, with spectral and adversarial losses, directly or as a CUDA graph.

An update consists of thousands of small kernels. Launched one by one they leave the GPU waiting for the CPU, which
synthesises speech at the same time; a graph launches them at once.
"""

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

_RATE, _ADVERSARIAL_RATE, _DISCRIMINATOR_RATE = 8e-4, 4e-4, 3e-4
_SPECTRAL_WEIGHT, _ENVELOPE_WEIGHT = 15.0, 25.0
_HISTORY_FRAMES = 2
"""Most of the vocoder's receptive field."""
_ALL_LEVELS = 0.9
"""Share of windows decoded from all sixteen codes; the others use the first four to fifteen."""


class DecoderTraining:
    """Updates the decoder, with or without discriminators.

    `step` has no data-dependent control flow and draws random numbers on the device only, so a CUDA graph can capture
    it. The losses see a random part of each window, `part_frames` long.
    """

    def __init__(
        self,
        decoder: CodecDecoderNetwork,
        discriminators: Discriminators,
        device: torch.device,
        part_frames: int,
    ) -> None:
        cuda = device.type == "cuda"
        self.decoder, self._device, self._part_frames = decoder, device, part_frames
        self.discriminators = discriminators.to(device, memory_format=torch.channels_last)
        self._parameters = [p for p in decoder.parameters() if p.requires_grad]

        def optimizer(parameters: list[torch.nn.Parameter], weight_decay: float) -> torch.optim.AdamW:
            # The rate is a tensor on the device, which a graph reads at each replay.
            rate = torch.zeros((), device=device) if cuda else 0.0
            return torch.optim.AdamW(
                parameters, rate, betas=(0.8, 0.98), weight_decay=weight_decay, fused=cuda, capturable=cuda
            )

        self._optimizer = optimizer(self._parameters, 1e-3)
        self._discriminator_optimizer = optimizer(list(self.discriminators.parameters()), 1e-2)

        # May be replaced by a compiled function.
        self.decode: Any = decoder.part

    def set_rates(self, share: float, update: int, *, adversarial: bool) -> None:
        """Set the learning rates, 0 initially. share: elapsed share of the time."""
        rate = _RATE * warm_up(update, 200) * flat_then_linear(share, 0.4, 0.03)
        _set_rate(self._optimizer, min(rate, _ADVERSARIAL_RATE) if adversarial else rate)
        _set_rate(self._discriminator_optimizer, _DISCRIMINATOR_RATE * flat_then_linear(share, 0.5, 0.03))

    def step(self, codes: Tensor, audio: Tensor, from_start: int, *, adversarial: bool) -> dict[str, Tensor]:
        """Update on codes int64 [batch, 16, T] and audio float [batch, T * 1920]; returns the losses.

        The first `from_start` windows begin with a sentence, where the vocoder has no history in use either, so their
        losses are of their first frames. In the others, the first frames decoded only serve as the vocoder's history.
        """
        batch = codes.shape[0]
        decoded_frames = _HISTORY_FRAMES + self._part_frames
        anywhere = torch.randint(0, codes.shape[-1] - decoded_frames + 1, (batch, 1), device=self._device)
        is_start = (torch.arange(batch, device=self._device) < from_start)[:, None]
        first = anywhere.masked_fill(is_start, 0)
        history = torch.full_like(first, _HISTORY_FRAMES).masked_fill(is_start, 0)
        some = torch.randint(4, CODEBOOKS, (batch,), device=self._device)
        kept = some.masked_fill(torch.rand(batch, device=self._device) < _ALL_LEVELS, CODEBOOKS)
        with half_precision(self._device):
            made = self.decode(codes, kept, first, decoded_frames).float()
        samples = torch.arange(self._part_frames * FRAME_SAMPLES, device=self._device)
        made = made.gather(1, history * FRAME_SAMPLES + samples)
        audio = audio.gather(1, (first + history) * FRAME_SAMPLES + samples)
        losses = {"spectral": spectral_loss(made, audio), "envelope": envelope_loss(made, audio)}
        loss = _SPECTRAL_WEIGHT * losses["spectral"] + _ENVELOPE_WEIGHT * losses["envelope"]
        if adversarial:
            self._adversarial_losses(made, audio, losses)
            loss = loss + losses["adversarial"] + losses["feature_matching"]
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        losses["gradient"] = torch.nn.utils.clip_grad_norm_(self._parameters, 5.0)
        self._optimizer.step()
        return {name: value.detach() for name, value in losses.items()}

    def _adversarial_losses(self, made: Tensor, audio: Tensor, losses: dict[str, Tensor]) -> None:
        """Update the discriminators, then add the generator's losses to `losses`."""
        images = self.discriminators.images(torch.cat([audio, made.detach()]))
        with half_precision(self._device):
            losses["discriminators"], real_features = discriminator_loss(self.discriminators, images)
        self._discriminator_optimizer.zero_grad(set_to_none=True)
        losses["discriminators"].backward()
        torch.nn.utils.clip_grad_norm_(self.discriminators.parameters(), 10.0)
        self._discriminator_optimizer.step()
        self.discriminators.requires_grad_(False)
        images = self.discriminators.images(made)
        with half_precision(self._device):
            losses["adversarial"], losses["feature_matching"] = generator_loss(
                self.discriminators, images, real_features
            )
        self.discriminators.requires_grad_(True)


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


_WARM_UP_STEPS = 4


class GraphedSteps:
    """`DecoderTraining.step` as CUDA graphs, for windows of one shape. Learning rates must be 0 during construction."""

    def __init__(self, training: DecoderTraining, windows: int, frames: int, from_start: int) -> None:
        device = next(training.decoder.parameters()).device
        self._codes = torch.randint(0, 512, (windows, CODEBOOKS, frames), device=device)
        self._audio = torch.randn(windows, frames * FRAME_SAMPLES, device=device) * 0.1
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        self._losses: dict[bool, dict[str, Tensor]] = {}
        for adversarial in (False, True):
            # Libraries select kernels and compilers run in the first steps, which cannot be captured.
            warm_up_stream = torch.cuda.Stream()
            warm_up_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(warm_up_stream):
                for _ in range(_WARM_UP_STEPS):
                    training.step(self._codes, self._audio, from_start, adversarial=adversarial)
            torch.cuda.current_stream().wait_stream(warm_up_stream)
            torch.cuda.synchronize()
            gc.collect()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._losses[adversarial] = training.step(self._codes, self._audio, from_start, adversarial=adversarial)
            self._graphs[adversarial] = graph

    def __call__(self, codes: Tensor, audio: Tensor, *, adversarial: bool) -> dict[str, Tensor]:
        """Replay the step; the returned losses are valid until the next call."""
        self._codes.copy_(codes)
        self._audio.copy_(audio)
        self._graphs[adversarial].replay()
        return self._losses[adversarial]
