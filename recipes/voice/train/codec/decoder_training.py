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
from .balance import balanced
from .decoder import CodecDecoderNetwork
from .discriminators import Discriminators, discriminator_loss, generator_loss
from .losses import SpectralLosses, spectra

_RATE, _ADVERSARIAL_RATE, _DISCRIMINATOR_RATE = 8e-4, 4e-4, 3e-4
_SPECTRAL_WEIGHT, _ENVELOPE_WEIGHT = 15.0, 25.0
"""Each has about the same gradient then, as have adversarial loss and distance of features."""
_ADVERSARIAL_SHARE = 1.5
"""The discriminators' part of the gradient, relative to the spectral losses'; four in EnCodec."""
_ADVERSARIAL_WARM_UP = 1000
"""Updates until that part is full: at first discriminators have not learnt anything, and their gradient is as large."""
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
        self._adversarial_share, self._adversarial_updates = torch.zeros((), device=device), 0

        # May be replaced by compiled functions.
        self.decode: Any = decoder.part
        self._spectral_losses: Any = SpectralLosses(device)
        self._discriminator_loss: Any = discriminator_loss
        self._generator_loss: Any = generator_loss

    def compile(self) -> None:
        """Compile decoder and losses at their first use, for constant shapes; what cannot be compiled runs without."""
        torch._dynamo.config.suppress_errors = True
        self.decode = torch.compile(self.decode, dynamic=False)
        self._spectral_losses = torch.compile(self._spectral_losses, dynamic=False)
        self._discriminator_loss = torch.compile(self._discriminator_loss, dynamic=False)
        self._generator_loss = torch.compile(self._generator_loss, dynamic=False)

    def set_rates(self, share: float, update: int, *, adversarial: bool) -> None:
        """Set the learning rates, and the discriminators' part, for the next update; share: elapsed share of the time.

        All are 0 initially.
        """
        fresh = warm_up(update, 200)
        rate, turn = (_ADVERSARIAL_RATE, 0.35) if adversarial else (_RATE, 0.4)
        if adversarial:
            self._adversarial_share.fill_(_ADVERSARIAL_SHARE * warm_up(self._adversarial_updates, _ADVERSARIAL_WARM_UP))
            self._adversarial_updates += 1
        _set_rate(self._optimizer, rate * fresh * flat_then_linear(share, turn, 0.02))
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
        gradient, losses = self._gradient(made.detach().requires_grad_(), audio, adversarial=adversarial)
        self._optimizer.zero_grad(set_to_none=True)
        made.backward(gradient)
        self._optimizer.step()
        return {name: value.detach() for name, value in losses.items()}

    def _gradient(self, made: Tensor, audio: Tensor, *, adversarial: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Gradient for the generated audio, float [batch, n], and the losses. Updates the discriminators."""
        with torch.no_grad():
            real_spectra = spectra(audio)
        made_spectra = spectra(made)
        # Compiled functions cannot go backward twice, and both groups of losses use the spectra.
        inputs = [made.detach().requires_grad_(), *(one.detach().requires_grad_() for one in made_spectra)]

        def at_audio(loss: Tensor) -> Tensor:
            found = torch.autograd.grad(loss, inputs, allow_unused=True)
            used = [(one, part) for one, part in zip(made_spectra, found[1:], strict=True) if part is not None]
            outputs, parts = zip(*used, strict=True)
            through_spectra: Tensor = torch.autograd.grad(outputs, made, parts, retain_graph=True)[0]
            return through_spectra if found[0] is None else found[0] + through_spectra

        losses: dict[str, Tensor] = {}
        losses["spectral"], losses["envelope"] = self._spectral_losses(inputs[1:], real_spectra)
        loss = _SPECTRAL_WEIGHT * losses["spectral"] + _ENVELOPE_WEIGHT * losses["envelope"]
        gradients = [(at_audio(loss), 1.0)]
        if adversarial:
            fixed = [one.detach() for one in (made, *made_spectra)]
            losses["discriminators"], real_features = self._update_discriminators(
                fixed[0], fixed[1:], audio, real_spectra
            )
            self.discriminators.requires_grad_(False)
            with half_precision(self._device):
                losses["adversarial"], losses["feature_matching"] = self._generator_loss(
                    self.discriminators, inputs[0], inputs[1:], real_features
                )
            gradients.append((at_audio(losses["adversarial"] + losses["feature_matching"]), self._adversarial_share))
            self.discriminators.requires_grad_(True)
        gradient, norms = balanced(gradients)
        losses.update(zip(("spectral_gradient", "adversarial_gradient"), norms, strict=False))
        return gradient, losses

    def _update_discriminators(
        self, made: Tensor, made_spectra: list[Tensor], real: Tensor, real_spectra: list[Tensor]
    ) -> tuple[Tensor, list[list[Tensor]]]:
        """Update the discriminators on fixed audio; returns their loss, and the features of the real audio."""
        with half_precision(self._device):
            loss, real_features = self._discriminator_loss(self.discriminators, made, made_spectra, real, real_spectra)
        self._discriminator_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.discriminators.parameters(), 10.0)
        self._discriminator_optimizer.step()
        return loss, real_features


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
