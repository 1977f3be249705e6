"""The speaker encoder of a Base checkpoint: a recording to the vector that stands for its voice.

An ECAPA-TDNN; modules are named as in the published weights, so that their own shapes are the check of a checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ...codecs.neural.document import CodecFormatError
from ...codecs.neural.stored import build_loaded
from ..checkpoint import CheckpointError
from .mel import BINS, log_mel
from .speaker_config import SpeakerEncoderConfig

PREFIX = "speaker_encoder."


class SpeakerEncoder(nn.Module):
    """Qwen3-TTS speaker encoder (spec sections D.2 and F.2), run in float32 whatever the weights are stored in."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.config = config
        widths, kernels, dilations = config.enc_channels, config.enc_kernel_sizes, config.enc_dilations
        first = ConvRelu(BINS, widths[0], kernels[0], dilations[0])
        inner = range(1, len(widths) - 1)
        rest = [SqueezedRes2Net(config, widths[i - 1], widths[i], kernels[i], dilations[i]) for i in inner]
        self.blocks = nn.ModuleList([first, *rest])
        self.mfa = ConvRelu(sum(widths[1:-1]), widths[-1], kernels[-1], dilations[-1])
        self.asp = AttentivePooling(widths[-1], config.enc_attention_channels)
        self.fc = nn.Conv1d(2 * widths[-1], config.enc_dim, 1)

    @classmethod
    def from_checkpoint(cls, folder: Path) -> SpeakerEncoder:
        """Load it from a Base checkpoint folder. Raises CheckpointError."""
        config = SpeakerEncoderConfig.from_checkpoint(folder)
        try:
            return build_loaded(lambda: cls(config), folder, PREFIX)
        except CodecFormatError as error:
            raise CheckpointError(str(error)) from error

    @torch.inference_mode()
    def encode(self, pcm: Tensor) -> Tensor:
        """float32 [n] in [-1, 1], 24 kHz mono, at least 0.1 s -> float32 [enc_dim]."""
        vector: Tensor = self(log_mel(pcm)[None])
        return vector[0]

    def forward(self, mel: Tensor) -> Tensor:
        """[B, T, 128] -> [B, enc_dim]."""
        x = self.blocks[0](mel.transpose(1, 2))
        heard = []
        for block in self.blocks[1:]:
            x = block(x)
            heard.append(x)
        x = self.mfa(torch.cat(heard, dim=1))
        vector: Tensor = self.fc(self.asp(x))
        return vector.squeeze(2)


class ConvRelu(nn.Module):
    """A convolution that keeps the length, reflecting at the edges, and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, padding="same", padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, T] -> [B, outputs, T]."""
        return relu(self.conv(x))


class Res2Net(nn.Module):
    """Channels in chunks: the first passes through, every other one is convolved together with the one before it."""

    def __init__(self, width: int, scale: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.scale = scale
        self.blocks = nn.ModuleList(
            ConvRelu(width // scale, width // scale, kernel, dilation) for _ in range(scale - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, T] -> the same shape."""
        first, second, *rest = x.chunk(self.scale, dim=1)
        outputs = [first, self.blocks[0](second)]
        for chunk, block in zip(rest, self.blocks[1:], strict=True):
            outputs.append(block(chunk + outputs[-1]))
        return torch.cat(outputs, dim=1)


class SqueezeExcitation(nn.Module):
    """Weighs every channel by what all channels were on average over time."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, squeezed, 1)
        self.conv2 = nn.Conv1d(squeezed, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, T] -> the same shape."""
        weight = torch.sigmoid(self.conv2(relu(self.conv1(x.mean(dim=2, keepdim=True)))))
        return x * weight


class SqueezedRes2Net(nn.Module):
    """Pointwise, Res2Net, pointwise, squeeze and excitation, with a residual around it all."""

    def __init__(self, config: SpeakerEncoderConfig, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.tdnn1 = ConvRelu(inputs, outputs)
        self.res2net_block = Res2Net(outputs, config.enc_res2net_scale, kernel, dilation)
        self.tdnn2 = ConvRelu(outputs, outputs)
        self.se_block = SqueezeExcitation(outputs, config.enc_se_channels)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, T] -> [B, outputs, T]."""
        branch: Tensor = self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))
        return x + branch


class AttentivePooling(nn.Module):
    """Mean and deviation over time, where attention says how much each moment counts."""

    LEAST_VARIANCE = 1e-12

    def __init__(self, width: int, attention: int) -> None:
        super().__init__()
        self.tdnn = ConvRelu(3 * width, attention)
        self.conv = nn.Conv1d(attention, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, T] -> [B, 2 * width, 1]."""
        whole = self._statistics(x, torch.full_like(x, 1 / x.shape[2])).expand(-1, -1, x.shape[2])
        weights = self.conv(torch.tanh(self.tdnn(torch.cat((x, whole), dim=1)))).softmax(dim=2)
        return self._statistics(x, weights)

    def _statistics(self, x: Tensor, weights: Tensor) -> Tensor:
        mean = (weights * x).sum(dim=2, keepdim=True)
        variance = (weights * (x - mean).square()).sum(dim=2, keepdim=True)
        return torch.cat((mean, variance.clamp(min=self.LEAST_VARIANCE).sqrt()), dim=1)
