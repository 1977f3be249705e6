"""Losses of the codec decoder: distances of spectra and spectral envelopes, and discriminators.

The discriminators see waveforms folded by several periods, and complex spectra of several sizes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ..speech.audio import hann, log_mel, mel_filters

_RESOLUTIONS = ((2048, 512, 160), (1024, 256, 100), (512, 128, 64), (256, 64, 40), (128, 32, 20))
"""Window, hop, mel bins."""
_ENVELOPES = ((1024, 240, 32), (512, 120, 32))
"""Window, hop, mel bins up to `_ENVELOPE_HZ`: broad enough to average random fine structure."""
_ENVELOPE_HZ = 8000.0
_ENVELOPE_FLOOR = 1e-8
"""Power that counts as silence."""
_LEADING_SILENCE_SAMPLES = 1024
"""Padding before the audio: windows fade in, so a click at the first samples would not count without it."""


def spectral_loss(made: Tensor, real: Tensor) -> Tensor:
    """Mean absolute distance of log mel spectra at several resolutions, in decades; float [batch, n] each."""
    made, real = F.pad(made, (_LEADING_SILENCE_SAMPLES, 0)), F.pad(real, (_LEADING_SILENCE_SAMPLES, 0))
    total = made.new_zeros(())
    for fft, hop, bins in _RESOLUTIONS:
        made_mel, real_mel = (log_mel(audio, fft, hop, bins, 12_000.0, 1e-5) for audio in (made, real))
        total = total + (made_mel - real_mel).abs().mean()
    return total / len(_RESOLUTIONS)


def envelope_loss(made: Tensor, real: Tensor) -> Tensor:
    """Distance of the power in broad bands, which carries intelligibility; float [batch, n] each.

    In `spectral_loss`, random fine structure masks it. The squared term emphasises large errors.
    """
    made, real = F.pad(made, (_LEADING_SILENCE_SAMPLES, 0)), F.pad(real, (_LEADING_SILENCE_SAMPLES, 0))
    total = made.new_zeros(())
    for fft, hop, bins in _ENVELOPES:
        error = _envelope(made, fft, hop, bins) - _envelope(real, fft, hop, bins)
        total = total + error.abs().mean() + error.square().mean()
    return total / len(_ENVELOPES)


def _envelope(audio: Tensor, fft: int, hop: int, bins: int) -> Tensor:
    """float [batch, n] -> float [batch, bins, frames]: base-10 logarithm of the magnitude in each band."""
    spectrum = torch.stft(audio, fft, hop, fft, hann(fft, audio.device), center=False, return_complex=True)
    power = torch.view_as_real(spectrum).square().sum(-1) / fft
    return 0.5 * torch.log10(mel_filters(fft, bins, _ENVELOPE_HZ, audio.device) @ power + _ENVELOPE_FLOOR)


DiscriminatorOutput = tuple[Tensor, list[Tensor]]
"""Scores, and the features of every layer."""


class _Discriminator(nn.Module):
    """Two-dimensional convolutions with leaky activations."""

    def __init__(self, layers: list[nn.Conv2d], last: nn.Conv2d) -> None:
        super().__init__()
        self.layers = nn.ModuleList([weight_norm(layer) for layer in layers])
        self.last = weight_norm(last)

    def image(self, audio: Tensor) -> Tensor:
        """The input as an image: float [batch, n] -> [batch, channels, height, width]."""
        raise NotImplementedError

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
        layers = [nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in pairs]
        layers.append(nn.Conv2d(widths[-1], widths[-1], (5, 1), 1, (2, 0)))
        super().__init__(layers, nn.Conv2d(widths[-1], 1, (3, 1), 1, (1, 0)))
        self.period = period

    def image(self, audio: Tensor) -> Tensor:
        whole = audio.shape[-1] // self.period * self.period
        return audio[..., :whole].reshape(audio.shape[0], 1, -1, self.period)


class SpectrumDiscriminator(_Discriminator):
    """Complex short-time spectrum (Jang et al., UnivNet, 2021; Défossez et al., EnCodec, 2022)."""

    def __init__(self, fft: int, width: int = 32) -> None:
        wide = (3, 9)
        layers = [nn.Conv2d(2, width, wide, 1, (1, 4))]
        layers += [nn.Conv2d(width, width, wide, (1, 2), (1, 4)) for _ in range(3)]
        layers.append(nn.Conv2d(width, width, 3, 1, 1))
        super().__init__(layers, nn.Conv2d(width, 1, 3, 1, 1))
        self.fft = fft

    def image(self, audio: Tensor) -> Tensor:
        window = hann(self.fft, audio.device)
        spectrum = torch.stft(audio.float(), self.fft, self.fft // 4, self.fft, window, return_complex=True)
        return torch.view_as_real(spectrum * (20.0 / self.fft**0.5)).permute(0, 3, 2, 1)


class Discriminators(nn.Module):
    """All discriminators."""

    def __init__(self, periods: tuple[int, ...] = (2, 3, 5, 7, 11), ffts: tuple[int, ...] = (2048, 1024, 512)) -> None:
        super().__init__()
        self.members = nn.ModuleList([*map(PeriodDiscriminator, periods), *map(SpectrumDiscriminator, ffts)])

    def images(self, audio: Tensor) -> list[Tensor]:
        """float [batch, n] -> the image for each discriminator."""
        images = [member.image(audio) for member in self.members]
        return [image.contiguous(memory_format=torch.channels_last) for image in images]

    def forward(self, images: list[Tensor]) -> list[DiscriminatorOutput]:
        """Output of each discriminator for its image."""
        return [member(image) for member, image in zip(self.members, images, strict=True)]


def discriminator_loss(discriminators: Discriminators, images: list[Tensor]) -> tuple[Tensor, list[list[Tensor]]]:
    """Least-squares loss (target 1 for real audio, 0 for generated), and the features of the real audio, detached.

    images: of real audio in the first half of the batch, of generated audio in the second.
    """
    total = images[0].new_zeros(())
    real_features = []
    for score, features in discriminators(images):
        real, made = score.float().chunk(2)
        total = total + (1 - real).square().mean() + made.square().mean()
        real_features.append([layer.detach().chunk(2)[0] for layer in features])
    return total, real_features


def generator_loss(
    discriminators: Discriminators, images: list[Tensor], real_features: list[list[Tensor]]
) -> tuple[Tensor, Tensor]:
    """Adversarial loss of generated audio, and the distance of its features from those of the real audio."""
    adversarial_loss, feature_loss = images[0].new_zeros(()), images[0].new_zeros(())
    for (score, features), real in zip(discriminators(images), real_features, strict=True):
        adversarial_loss = adversarial_loss + (1 - score.float()).square().mean()
        for generated_layer, real_layer in zip(features, real, strict=True):
            reference = real_layer.float()
            feature_loss = feature_loss + (generated_layer.float() - reference).abs().mean() / (
                reference.abs().mean() + 1e-4
            )
    return adversarial_loss, feature_loss / 5
