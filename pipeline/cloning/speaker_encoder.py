"""The speaker encoder of a Base checkpoint: a recording to the vector that represents its voice.

An ECAPA-TDNN (Desplanques et al., 2020) over a log mel spectrogram (`docs/qwen3_tts.md`, sections 10 and 11.2). Modules
have the names of the published weights, so that loading checks a checkpoint's tensors against their shapes.
"""

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

from ..checkpoint.checkpoint import read_json_object
from ..errors import CheckpointError

PREFIX = "speaker_encoder."
MEL_WINDOW = 1024
MEL_HOP = 256
MEL_BINS = 128
MEL_FLOOR = 1e-5
MIN_SAMPLES = (MEL_WINDOW - MEL_HOP) // 2 + 1
"""Least audio: reflection at the edges needs more samples than it adds."""


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """`speaker_encoder_config` of a checkpoint (`docs/qwen3_tts.md`, section 10).

    Published files state only `enc_dim`; the other defaults are those of the reference implementation.
    """

    enc_dim: int
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128

    @classmethod
    def from_checkpoint(cls, folder: Path) -> SpeakerEncoderConfig:
        """Read `config.json`. Raises CheckpointError, also if the checkpoint has no speaker encoder."""
        path = folder / "config.json"
        section = read_json_object(path).get("speaker_encoder_config")
        if not isinstance(section, Mapping):
            raise CheckpointError(f"{path} has no speaker_encoder_config: only Base models can clone a voice")
        return cls.from_section(path, section)

    @classmethod
    def from_section(cls, path: Path, section: Mapping[str, Any]) -> SpeakerEncoderConfig:
        """Check and convert the section of the file at `path`. Raises CheckpointError."""
        try:
            values = config_values("speaker_encoder_config", section, cls)
        except CodecFormatError as error:
            raise CheckpointError(f"{path}: {error}") from error
        if "enc_dim" not in values:
            raise CheckpointError(f"{path}: speaker_encoder_config.enc_dim is missing")
        config = cls(**values)
        unsupported = []
        if section.get("mel_dim", MEL_BINS) != MEL_BINS or section.get("sample_rate", SAMPLE_RATE_HZ) != SAMPLE_RATE_HZ:
            unsupported.append(f"input other than {MEL_BINS} mel bins at {SAMPLE_RATE_HZ} Hz")
        widths = config.enc_channels
        if not len(widths) == len(config.enc_kernel_sizes) == len(config.enc_dilations) >= 3:
            unsupported.append("enc_channels, enc_kernel_sizes and enc_dilations of different or too short lengths")
        if any(width % config.enc_res2net_scale for width in widths[1:-1]) or config.enc_res2net_scale < 2:
            unsupported.append(f"enc_channels that are not multiples of {config.enc_res2net_scale}")
        if len(set(widths[:-1])) > 1:
            unsupported.append("enc_channels that differ before the last")
        if unsupported:
            raise CheckpointError(f"{path}: this speaker encoder does not support {'; '.join(unsupported)}")
        return config


class SpeakerEncoder(nn.Module):
    """The network, run in float32 whatever the precision of the stored weights."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.config = config
        widths, kernels, dilations = config.enc_channels, config.enc_kernel_sizes, config.enc_dilations
        first = ConvRelu(MEL_BINS, widths[0], kernels[0], dilations[0])
        inner = range(1, len(widths) - 1)
        rest = [SqueezeExcitationRes2Net(config, widths[i - 1], widths[i], kernels[i], dilations[i]) for i in inner]
        self.blocks = nn.ModuleList([first, *rest])
        self.mfa = ConvRelu(sum(widths[1:-1]), widths[-1], kernels[-1], dilations[-1])
        self.asp = AttentivePooling(widths[-1], config.enc_attention_channels)
        self.fc = nn.Conv1d(2 * widths[-1], config.enc_dim, 1)

    @classmethod
    def from_checkpoint(cls, folder: Path) -> SpeakerEncoder:
        """Load the encoder of a Base checkpoint folder. Raises CheckpointError."""
        config = SpeakerEncoderConfig.from_checkpoint(folder)
        try:
            return load_module_weights(lambda: cls(config), folder, PREFIX)
        except CodecFormatError as error:
            raise CheckpointError(str(error)) from error

    @torch.inference_mode()
    def encode(self, pcm: Tensor) -> Tensor:
        """The speaker vector, float32 [enc_dim], of audio: float32 [n] in [-1, 1], 24 kHz mono, at least 0.1 s."""
        vector: Tensor = self(log_mel(pcm)[None])
        return vector[0]

    def forward(self, mel: Tensor) -> Tensor:
        """Log mel spectrogram [B, T, 128] -> speaker vectors [B, enc_dim]."""
        x = self.blocks[0](mel.transpose(1, 2))
        outputs = []
        for block in self.blocks[1:]:
            x = block(x)
            outputs.append(x)
        x = self.mfa(torch.cat(outputs, dim=1))
        vector: Tensor = self.fc(self.asp(x))
        return vector.squeeze(2)


class ConvRelu(nn.Module):
    """Convolution with reflection padding, which keeps the length, and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, padding="same", padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, T] -> [B, outputs, T]."""
        return relu(self.conv(x))


class Res2Net(nn.Module):
    """Res2Net layer (Gao et al., 2019) over chunks of channels.

    The first chunk passes through, the second is convolved, each later one is convolved after adding the last output.
    """

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
    """Scales every channel by a gate computed from the mean of all channels over time (Hu et al., 2018)."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, squeezed, 1)
        self.conv2 = nn.Conv1d(squeezed, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, T] -> the same shape."""
        weight = torch.sigmoid(self.conv2(relu(self.conv1(x.mean(dim=2, keepdim=True)))))
        return x * weight


class SqueezeExcitationRes2Net(nn.Module):
    """SE-Res2Block of ECAPA-TDNN: pointwise, Res2Net, pointwise, squeeze-excitation, and a residual around them."""

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
    """Attentive statistics pooling (Okabe et al., 2018): weighted mean and standard deviation over time."""

    MIN_VARIANCE = 1e-12

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
        return torch.cat((mean, variance.clamp(min=self.MIN_VARIANCE).sqrt()), dim=1)


def log_mel(pcm: Tensor) -> Tensor:
    """Log mel spectrogram (`docs/qwen3_tts.md`, section 10, item 1).

    float32 [n] at 24 kHz, n >= MIN_SAMPLES -> float32 [n // 256, 128].
    """
    edge = (MEL_WINDOW - MEL_HOP) // 2
    padded = pad(pcm[None, None], (edge, edge), mode="reflect")[0, 0]
    spectrum = torch.stft(
        padded, MEL_WINDOW, MEL_HOP, window=torch.hann_window(MEL_WINDOW), center=False, return_complex=True
    )
    magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-9)
    return (mel_filters() @ magnitude).clamp(min=MEL_FLOOR).log().t()


@cache
def mel_filters() -> Tensor:
    """Triangular filters of equal area, evenly spaced on Slaney's mel scale from 0 to 12 kHz: float32 [128, 513]."""
    frequencies_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, MEL_WINDOW // 2 + 1)
    corners_hz = _mel_to_hz(np.linspace(0, _hz_to_mel(SAMPLE_RATE_HZ / 2), MEL_BINS + 2))
    left, centre, right = corners_hz[:-2, None], corners_hz[1:-1, None], corners_hz[2:, None]
    rising = (frequencies_hz - left) / (centre - left)
    falling = (right - frequencies_hz) / (right - centre)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy((triangles * 2 / (right - left)).astype(np.float32))


# Slaney's scale (Auditory Toolbox, 1998): linear up to 1 kHz, which is mel 15, logarithmic above.
_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    """Valid in the logarithmic part."""
    return float(_BREAK_MEL + np.log(hz / _BREAK_HZ) / _LOG_STEP)


def _mel_to_hz(mel: np.ndarray) -> np.ndarray:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ_PER_MEL, above)
