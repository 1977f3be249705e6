"""The mel spectrogram that the speaker encoder listens to."""
# TODO-DOC The speaker encoder's dimensions, read from `config.json` of a Base checkpoint.
# TODO-DOC The speaker encoder of a Base checkpoint: a recording to the vector that stands for its voice. An ECAPA-
# TODO-DOC TDNN; modules are named as in the published weights, so that their own shapes are the check of a
# TODO-DOC checkpoint.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu
from voxgate.codecs.neural.checkpoint import CodecFormatError, config_values
from voxgate.codecs.neural.weights import load_module_weights
from voxgate.codecs.pcm import SAMPLE_RATE_HZ

from ..checkpoint import read_json_object
from ..errors import CheckpointError

MEL_WINDOW = 1024
MEL_HOP = 256
MEL_BINS = 128
MEL_FLOOR = 1e-5
LEAST_SAMPLES = (MEL_WINDOW - MEL_HOP) // 2 + 1
"""Reflection at the edges needs more samples than it adds."""


def log_mel(pcm: Tensor) -> Tensor:
    """Log mel spectrogram (spec section F.2): float32 [n] at 24 kHz, n >= 385 -> float32 [n // 256, 128]."""
    edge = (MEL_WINDOW - MEL_HOP) // 2
    padded = pad(pcm[None, None], (edge, edge), mode="reflect")[0, 0]
    spectrum = torch.stft(
        padded, MEL_WINDOW, MEL_HOP, window=torch.hann_window(MEL_WINDOW), center=False, return_complex=True
    )
    magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-9)
    return (mel_filters() @ magnitude).clamp(min=MEL_FLOOR).log().t()


@cache
def mel_filters() -> Tensor:
    """Triangles of equal area, evenly spaced on Slaney's mel scale from 0 to 12 kHz: float32 [128, 513]."""
    frequencies_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, MEL_WINDOW // 2 + 1)
    corners_hz = _mel_to_hz(np.linspace(0, _hz_to_mel(SAMPLE_RATE_HZ / 2), MEL_BINS + 2))
    left, centre, right = corners_hz[:-2, None], corners_hz[1:-1, None], corners_hz[2:, None]
    rising = (frequencies_hz - left) / (centre - left)
    falling = (right - frequencies_hz) / (right - centre)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy((triangles * 2 / (right - left)).astype(np.float32))


# Slaney's scale: linear up to 1 kHz, which is mel 15, logarithmic above.
_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    """For frequencies in the logarithmic part."""
    return float(_BREAK_MEL + np.log(hz / _BREAK_HZ) / _LOG_STEP)


def _mel_to_hz(mel: np.ndarray) -> np.ndarray:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ_PER_MEL, above)


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """`speaker_encoder_config`; published files name only `enc_dim`, the rest has the reference's defaults (F.2)."""

    enc_dim: int
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128

    @classmethod
    def from_checkpoint(cls, folder: Path) -> SpeakerEncoderConfig:
        """Read `config.json`. Raises CheckpointError, also when the checkpoint has no speaker encoder."""
        path = folder / "config.json"
        section = read_json_object(path).get("speaker_encoder_config")
        if not isinstance(section, Mapping):
            raise CheckpointError(f"{path} has no speaker_encoder_config: only Base models can clone a voice")
        return cls.from_section(path, section)

    @classmethod
    def from_section(cls, path: Path, section: Mapping[str, Any]) -> SpeakerEncoderConfig:
        """Read the section of the file at `path`. Raises CheckpointError."""
        try:
            values = config_values("speaker_encoder_config", section, cls)
        except CodecFormatError as error:
            raise CheckpointError(f"{path}: {error}") from error
        if "enc_dim" not in values:
            raise CheckpointError(f"{path}: speaker_encoder_config.enc_dim is missing")
        config = cls(**values)
        complaints = []
        if section.get("mel_dim", MEL_BINS) != MEL_BINS or section.get("sample_rate", SAMPLE_RATE_HZ) != SAMPLE_RATE_HZ:
            complaints.append(f"other input than {MEL_BINS} mel bins at {SAMPLE_RATE_HZ} Hz")
        widths = config.enc_channels
        if not len(widths) == len(config.enc_kernel_sizes) == len(config.enc_dilations) >= 3:
            complaints.append("enc_channels, enc_kernel_sizes and enc_dilations of different or too small lengths")
        if any(width % config.enc_res2net_scale for width in widths[1:-1]) or config.enc_res2net_scale < 2:
            complaints.append(f"enc_channels that are no multiples of {config.enc_res2net_scale}")
        if len(set(widths[:-1])) > 1:
            complaints.append("enc_channels that differ before the last")
        if complaints:
            raise CheckpointError(f"{path}: this speaker encoder does not support {'; '.join(complaints)}")
        return config


PREFIX = "speaker_encoder."


class SpeakerEncoder(nn.Module):
    """Qwen3-TTS speaker encoder (spec sections D.2 and F.2), run in float32 whatever the weights are stored in."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.config = config
        widths, kernels, dilations = config.enc_channels, config.enc_kernel_sizes, config.enc_dilations
        first = ConvRelu(MEL_BINS, widths[0], kernels[0], dilations[0])
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
            return load_module_weights(lambda: cls(config), folder, PREFIX)
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
