"""The codec decoder for training, with the published tensor names: codes at 12.5 Hz to audio at 24 kHz.

Implemented apart from the gateway's decoder, because training needs gradients and whole sequences, and runs without
this project installed. `docs/qwen3_tts.md`, sections 8.1 and 8.2, describes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import CODEBOOK_SIZE, CODEBOOKS, DECODER, DecoderSize
from ..transformer import CausalTransformer, additive_mask

# Convolutions over time are two-dimensional with a height of one, because the memory format with innermost channels,
# for which cuDNN needs no transpositions, exists for images only. The output has the input's format.


class CausalConv1d(nn.Module):
    """Convolution of stride 1, padded with zeros on the left (the published `CausalConvNet`)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self.padding = (kernel - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        conv, image = self.conv, F.pad(x.unsqueeze(2), (self.padding, 0))
        dilation = (1, conv.dilation[0])
        return F.conv2d(image, conv.weight.unsqueeze(2), conv.bias, 1, 0, dilation, conv.groups).squeeze(2)


class CausalConvTranspose1d(nn.Module):
    """Transposed convolution without the outputs beyond the last stride (the published `CausalTransConvNet`)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        conv, image = self.conv, x.unsqueeze(2)
        y = F.conv_transpose2d(image, conv.weight.unsqueeze(2), conv.bias, (1, self.stride)).squeeze(2)
        return y[..., : x.shape[-1] * self.stride]


class CodebookTensors(nn.Module):
    """One codebook as stored: sums and counts of the frames assigned to each entry."""

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.cluster_usage = nn.Parameter(torch.ones(entries), requires_grad=False)
        self.embedding_sum = nn.Parameter(torch.zeros(entries, width))


class _Level(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self._codebook = CodebookTensors(CODEBOOK_SIZE, width)


class _Levels(nn.Module):
    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Level(width) for _ in range(levels)])


class QuantizerTensors(nn.Module):
    """A residual quantizer with `levels` codebooks, and the projection of their sum."""

    def __init__(self, width: int, latent: int, levels: int) -> None:
        super().__init__()
        self.input_proj = nn.Conv1d(latent, width, 1, bias=False)  # part of the format, unused in decoding
        self.output_proj = nn.Conv1d(width, latent, 1, bias=False)
        self.vq = _Levels(width, levels)
        self.input_proj.requires_grad_(False)

    def decode(self, codes: Tensor, kept: Tensor | None = None) -> Tensor:
        """int [batch, levels, T] -> [batch, latent, T]; `kept`, int [batch]: number of levels to sum, in training."""
        books = [level._codebook for level in self.vq.layers]
        sums, usage = torch.cat([b.embedding_sum for b in books]), torch.cat([b.cluster_usage for b in books])
        order = torch.arange(len(books), device=codes.device)[:, None]
        rows = F.embedding(codes + order * CODEBOOK_SIZE, sums / usage.clamp(min=1e-5)[:, None])
        if kept is not None:
            rows = rows * (kept[:, None, None] > order)[..., None]
        return (rows.sum(1) @ self.output_proj.weight[..., 0].t()).transpose(1, 2)


class SplitQuantizer(nn.Module):
    """The quantizer of the first codebook and that of the other fifteen."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        width = size.codebook_dim // 2
        self.rvq_first = QuantizerTensors(width, size.codebook_dim, 1)
        self.rvq_rest = QuantizerTensors(width, size.codebook_dim, CODEBOOKS - 1)

    def decode(self, codes: Tensor, kept: Tensor | None = None) -> Tensor:
        """int [batch, 16, T] -> [batch, latent, T]."""
        return self.rvq_first.decode(codes[:, :1]) + self.rvq_rest.decode(codes[:, 1:], kept)


class PreTransformer(CausalTransformer):
    """Transformer over frames with a sliding window, between two projections."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__(size.transformer)
        self.window = size.sliding_window
        self.input_proj = nn.Linear(size.latent, size.transformer.hidden)
        self.output_proj = nn.Linear(size.transformer.hidden, size.latent)

    def decode(self, x: Tensor) -> Tensor:
        """[batch, T, latent] -> the same shape."""
        steps = torch.arange(x.shape[1], device=x.device)
        distance = steps[:, None] - steps[None]
        mask = additive_mask((distance >= 0) & (distance < self.window))
        return self.output_proj(self(self.input_proj(x), steps, mask))


class ConvNeXtBlock(nn.Module):
    """Causal ConvNeXt block (Liu et al., 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = CausalConv1d(width, width, 7, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).transpose(1, 2))
        return x + (self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))).transpose(1, 2)


class SnakeBeta(nn.Module):
    """Periodic activation with learnt frequency and amplitude (Lee et al., BigVGAN, 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        frequency, amplitude = self.alpha[:, None].exp(), self.beta[:, None].exp()
        return x + torch.sin(x * frequency).square() / (amplitude + 1e-9)


class VocoderUnit(nn.Module):
    """Residual unit of the vocoder: a dilated and a pointwise convolution."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.act1, self.conv1 = SnakeBeta(width), CausalConv1d(width, width, 7, dilation=dilation)
        self.act2, self.conv2 = SnakeBeta(width), CausalConv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))


class DecoderBlock(nn.Module):
    """Vocoder block: upsampling by `rate`, then three residual units."""

    def __init__(self, inputs: int, rate: int) -> None:
        super().__init__()
        outputs = inputs // 2
        units = [VocoderUnit(outputs, dilation) for dilation in (1, 3, 9)]
        self.block = nn.ModuleList([SnakeBeta(inputs), CausalConvTranspose1d(inputs, outputs, 2 * rate, rate), *units])

    def forward(self, x: Tensor) -> Tensor:
        return _apply_all(self.block, x)


def _apply_all(modules: Sequence[nn.Module] | nn.ModuleList, x: Tensor) -> Tensor:
    for module in modules:
        x = module(x)
    return x


class CodecDecoderNetwork(nn.Module):
    """Codes int [batch, 16, T] -> audio float [batch, 1920 * T], not clipped to [-1, 1]."""

    def __init__(self, size: DecoderSize = DECODER) -> None:
        super().__init__()
        self.quantizer, self.pre_transformer = SplitQuantizer(size), PreTransformer(size)
        self.pre_conv = CausalConv1d(size.codebook_dim, size.latent, 3)
        latent, ratios = size.latent, size.upsampling_ratios
        stages = [nn.ModuleList([CausalConvTranspose1d(latent, latent, r, r), ConvNeXtBlock(latent)]) for r in ratios]
        self.upsample = nn.ModuleList(stages)
        blocks = [DecoderBlock(size.vocoder >> index, rate) for index, rate in enumerate(size.upsample_rates)]
        last = size.vocoder >> len(blocks)
        self.decoder = nn.ModuleList(
            [CausalConv1d(latent, size.vocoder, 7), *blocks, SnakeBeta(last), CausalConv1d(last, 1, 7)]
        )

        self.steps_per_frame = math.prod(ratios)

    def forward(self, codes: Tensor, kept: Tensor | None = None) -> Tensor:
        return self.vocode(self.features(codes, kept))

    def features(self, codes: Tensor, kept: Tensor | None = None) -> Tensor:
        """The vocoder's input, [batch, latent, T * steps_per_frame]."""
        x = self.pre_conv(self.quantizer.decode(codes, kept))
        x = self.pre_transformer.decode(x.transpose(1, 2)).transpose(1, 2)
        for stage in self.upsample:
            x = _apply_all(stage, x)
        return x

    def vocode(self, features: Tensor) -> Tensor:
        """[batch, latent, T * steps_per_frame] -> audio [batch, T * 1920]."""
        *blocks, last = self.decoder
        image = features.unsqueeze(2).contiguous(memory_format=torch.channels_last)
        x = _apply_all(blocks, image.squeeze(2))
        with torch.autocast(x.device.type, enabled=False):  # in half precision the waveform has audible noise
            return last(x.float().contiguous())[:, 0]

    def part(self, codes: Tensor, kept: Tensor, first: Tensor, frames: int) -> Tensor:
        """Audio [batch, frames * 1920] from frame `first`, int [batch, 1], on, without the vocoder's history.

        The vocoder needs most of the time and memory, and less history than the transformer.
        """
        steps = torch.arange(frames * self.steps_per_frame, device=codes.device)
        place = (first * self.steps_per_frame + steps)[:, None].expand(-1, self.pre_conv.conv.out_channels, -1)
        return self.vocode(self.features(codes, kept).gather(2, place))
