"""Judges of real and made audio: waveforms folded by several periods, and complex spectra of several sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from .audio import hann

Judgement = tuple[Tensor, list[Tensor]]
"""Scores, and what every layer saw on the way."""


class _Judge(nn.Module):
    """Two-dimensional convolutions with leaky activations."""

    def __init__(self, layers: list[nn.Conv2d], last: nn.Conv2d) -> None:
        super().__init__()
        self.layers = nn.ModuleList([weight_norm(layer) for layer in layers])
        self.last = weight_norm(last)

    def image(self, audio: Tensor) -> Tensor:
        """float [batch, n] -> [batch, channels, height, width]"""
        raise NotImplementedError

    def forward(self, image: Tensor) -> Judgement:
        x, seen = image, []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            seen.append(x)
        return self.last(x), seen


class PeriodJudge(_Judge):
    """Every `period`-th sample in one column (Kong et al., HiFi-GAN, 2020)."""

    def __init__(self, period: int, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        pairs = zip((1, *widths), widths, strict=False)
        layers = [nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in pairs]
        layers.append(nn.Conv2d(widths[-1], widths[-1], (5, 1), 1, (2, 0)))
        super().__init__(layers, nn.Conv2d(widths[-1], 1, (3, 1), 1, (1, 0)))
        self.period = period

    def image(self, audio: Tensor) -> Tensor:
        whole = audio.shape[-1] // self.period * self.period
        return audio[..., :whole].reshape(audio.shape[0], 1, -1, self.period)


class SpectrumJudge(_Judge):
    """Real and imaginary part of a short-time spectrum (Jang et al., UnivNet, 2021; Défossez et al., EnCodec, 2022)."""

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


class Judges(nn.Module):
    def __init__(self, periods: tuple[int, ...] = (2, 3, 5, 7, 11), ffts: tuple[int, ...] = (2048, 1024, 512)) -> None:
        super().__init__()
        self.judges = nn.ModuleList([*map(PeriodJudge, periods), *map(SpectrumJudge, ffts)])

    def images(self, audio: Tensor) -> list[Tensor]:
        """float [batch, n] -> what each judge looks at."""
        images = [judge.image(audio) for judge in self.judges]
        return [image.contiguous(memory_format=torch.channels_last) for image in images]

    def forward(self, images: list[Tensor]) -> list[Judgement]:
        return [judge(image) for judge, image in zip(self.judges, images, strict=True)]


def judges_loss(judges: Judges, images: list[Tensor]) -> tuple[Tensor, list[list[Tensor]]]:
    """Least squares: real ones score one, made ones nought. Also what the judges saw in the real ones, detached.

    images: of real audio in the batch's first half, of made audio in its second.
    """
    total = images[0].new_zeros(())
    seen_real = []
    for score, seen in judges(images):
        real, made = score.float().chunk(2)
        total = total + (1 - real).square().mean() + made.square().mean()
        seen_real.append([layer.detach().chunk(2)[0] for layer in seen])
    return total, seen_real


def maker_loss(judges: Judges, images: list[Tensor], seen_real: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    """How far the made ones are from scoring one, and from being seen as the real ones were."""
    fooling, likeness = images[0].new_zeros(()), images[0].new_zeros(())
    for (score, seen), real in zip(judges(images), seen_real, strict=True):
        fooling = fooling + (1 - score.float()).square().mean()
        for ours, theirs in zip(seen, real, strict=True):
            reference = theirs.float()
            likeness = likeness + (ours.float() - reference).abs().mean() / (reference.abs().mean() + 1e-4)
    return fooling, likeness / 5
