"""The discriminators of the codec decoder, and their losses.

They see waveforms folded by several periods, and complex spectra of several sizes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .losses import RESOLUTIONS


class NormalisedConv2d(nn.Conv2d):
    """Convolution whose kernels have a learnt norm each (Salimans and Kingma, weight normalisation, 2016).

    PyTorch's parametrisation changes the memory format of the weights, so every use copies them.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding)
        self.gain = nn.Parameter(self._norms().detach().clone())

    def _norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self.weight, dim=(1, 2, 3), keepdim=True)
        return norms

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * (self.gain / self._norms()), self.bias, self.stride, self.padding)


DiscriminatorOutput = tuple[Tensor, list[Tensor]]
"""Scores, and the features of every layer."""


class _Discriminator(nn.Module):
    """Two-dimensional convolutions with leaky activations.

    Channels are the innermost dimension of images in memory, for which cuDNN's kernels are fastest.
    """

    def __init__(self, layers: list[NormalisedConv2d], last: NormalisedConv2d) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(layers), last

    def forward(self, image: Tensor) -> DiscriminatorOutput:
        x, features = image, []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return self.last(x), features


class PeriodDiscriminator(_Discriminator):
    """Waveform folded with every `period`-th sample in one column (Kong et al., HiFi-GAN, 2020)."""

    def __init__(self, period: int, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        pairs = zip((1, *widths), widths, strict=False)
        layers = [NormalisedConv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in pairs]
        layers.append(NormalisedConv2d(widths[-1], widths[-1], (5, 1), (1, 1), (2, 0)))
        super().__init__(layers, NormalisedConv2d(widths[-1], 1, (3, 1), (1, 1), (1, 0)))
        self.period = period

    def image(self, audio: Tensor) -> Tensor:
        """The waveform folded: float [batch, n] -> [batch, 1, n / period, period]."""
        whole = audio.shape[-1] // self.period * self.period
        return audio[..., :whole].unflatten(-1, (-1, self.period))[..., None].permute(0, 3, 1, 2)


class SpectrumDiscriminator(_Discriminator):
    """Complex short-time spectrum (Jang et al., UnivNet, 2021; Défossez et al., EnCodec, 2022).

    The first layer halves the frequencies already: at full resolution it was half of all discriminators' arithmetic.
    """

    def __init__(self, fft: int, width: int = 32) -> None:
        layers = [NormalisedConv2d(a, width, (3, 9), (1, 2), (1, 4)) for a in (2, width, width, width)]
        layers.append(NormalisedConv2d(width, width, (3, 3), (1, 1), (1, 1)))
        super().__init__(layers, NormalisedConv2d(width, 1, (3, 3), (1, 1), (1, 1)))
        self._place = [resolution[0] for resolution in RESOLUTIONS].index(fft)

    def image(self, spectra: list[Tensor]) -> Tensor:
        """The spectrum with levels near one: of `losses.spectra` -> [batch, 2, frames, fft / 2 + 1]."""
        return (12.0 * spectra[self._place]).permute(0, 3, 1, 2)


class Discriminators(nn.Module):
    """All discriminators."""

    def __init__(self, periods: tuple[int, ...] = (2, 3, 5, 7, 11), ffts: tuple[int, ...] = (2048, 1024, 512)) -> None:
        super().__init__()
        self.of_waveform = nn.ModuleList(map(PeriodDiscriminator, periods))
        self.of_spectra = nn.ModuleList(map(SpectrumDiscriminator, ffts))

    def forward(self, audio: Tensor, spectra: list[Tensor]) -> list[DiscriminatorOutput]:
        """Output of each discriminator for float [batch, n] and `losses.spectra` of it."""
        of_waveform = [member(member.image(audio)) for member in self.of_waveform]
        return of_waveform + [member(member.image(spectra)) for member in self.of_spectra]


def discriminator_loss(
    discriminators: Discriminators, made: Tensor, made_spectra: list[Tensor], real: Tensor, real_spectra: list[Tensor]
) -> tuple[Tensor, list[list[Tensor]]]:
    """Least-squares loss (target 1 for real audio, 0 for generated), and the features of the real audio, detached."""
    total = made.new_zeros(())
    real_features = []
    both = [torch.cat(pair) for pair in zip(real_spectra, made_spectra, strict=True)]
    for scores, features in discriminators(torch.cat([real, made]), both):
        real_scores, made_scores = scores.float().chunk(2)
        total = total + (1 - real_scores).square().mean() + made_scores.square().mean()
        real_features.append([layer.detach().chunk(2)[0] for layer in features])
    return total, real_features


def generator_loss(
    discriminators: Discriminators, made: Tensor, made_spectra: list[Tensor], real_features: list[list[Tensor]]
) -> tuple[Tensor, Tensor]:
    """Adversarial loss of generated audio, and the relative distance of its features from those of the real audio."""
    adversarial_loss, feature_loss = made.new_zeros(()), made.new_zeros(())
    for (scores, features), real in zip(discriminators(made, made_spectra), real_features, strict=True):
        adversarial_loss = adversarial_loss + (1 - scores.float()).square().mean()
        for made_layer, real_layer in zip(features, real, strict=True):
            reference = real_layer.float()
            distance = (made_layer.float() - reference).abs().mean()
            feature_loss = feature_loss + distance / (reference.abs().mean() + 1e-4)
    return adversarial_loss, feature_loss
