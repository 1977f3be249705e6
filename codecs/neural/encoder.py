"""The codec encoder: 24 kHz audio to codes, Mimi's encoder as Qwen3-TTS uses it (docs/qwen3_tts.md, section 9).

Modules have the names of the published weights, so that their parameters' names and shapes check a checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

from .config import EncoderConfig
from .weights import load_module_weights


class SplitResidualQuantizer(nn.Module):
    """One semantic and several acoustic codebooks, which quantize the same vectors.

    Only the first acoustic stages produce codes.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        semantic = config.num_semantic_quantizers
        self.acoustic_codes = config.valid_quantizers - semantic
        self.semantic_residual_vector_quantizer = ResidualVectorQuantizer(config, semantic)
        self.acoustic_residual_vector_quantizer = ResidualVectorQuantizer(config, config.num_quantizers - semantic)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, hidden] to int64 [B, T, 16], the semantic codes first."""
        semantic = self.semantic_residual_vector_quantizer
        codes = [*semantic(x, len(semantic.layers)), *self.acoustic_residual_vector_quantizer(x, self.acoustic_codes)]
        return torch.stack(codes, dim=2)


class ResidualVectorQuantizer(nn.Module):
    """A stack of stages, each of which quantizes the residual of those before it."""

    def __init__(self, config: EncoderConfig, stages: int) -> None:
        super().__init__()
        self.input_proj = nn.Conv1d(config.hidden_size, config.codebook_dim, 1, bias=False)
        # A parameter of the file that only decoding uses.
        self.output_proj = nn.Conv1d(config.codebook_dim, config.hidden_size, 1, bias=False)
        self.layers = nn.ModuleList(_QuantizerStage(config) for _ in range(stages))

    def forward(self, x: Tensor, stages: int) -> list[Tensor]:
        """Maps [B, T, hidden] to int64 [B, T] for each of the first `stages` stages."""
        residual = self.input_proj(x.transpose(1, 2)).transpose(1, 2)
        codes = []
        for layer in list(self.layers)[:stages]:
            assert isinstance(layer, _QuantizerStage)  # for the type checker: a ModuleList holds any module
            table = layer.codebook.table()
            nearest = torch.cdist(residual, table[None]).argmin(dim=2)
            residual = residual - table[nearest]
            codes.append(nearest)
        return codes


class _QuantizerStage(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.codebook = EuclideanCodebook(config)


class EuclideanCodebook(nn.Module):
    """A codebook as training stores it: the sum of the vectors assigned to each entry, and their number."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.embed_sum = nn.Parameter(torch.zeros(config.codebook_size, config.codebook_dim))
        self.cluster_usage = nn.Parameter(torch.ones(config.codebook_size))
        self.initialized = nn.Parameter(torch.ones(1))

    def table(self) -> Tensor:
        """Returns the entries, [codebook_size, codebook_dim]."""
        return self.embed_sum / self.cluster_usage.clamp(min=1e-5)[:, None]


ENCODER_PREFIX = "encoder."


class CodecEncoder(nn.Module):
    """The Qwen3-TTS 12 Hz encoder: 1920 samples at 24 kHz to one frame of 16 codes.

    Defined in docs/qwen3_tts.md, sections 9 and 11.4. It is causal: audio that follows changes no complete frame.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = SeanetEncoder(config)
        self.encoder_transformer = EncoderTransformer(config)
        self.downsample = PaddedConv(
            config.hidden_size, config.hidden_size, 2 * config.DOWNSAMPLING, config.DOWNSAMPLING, bias=False
        )
        self.downsample.pad_mode = "replicate"
        self.quantizer = SplitResidualQuantizer(config)

    @classmethod
    def from_checkpoint(cls, checkpoint_dir: Path) -> CodecEncoder:
        """Loads the `speech_tokenizer` folder of a checkpoint. Raises CodecFormatError."""
        config = EncoderConfig.from_checkpoint(checkpoint_dir)
        return load_module_weights(lambda: cls(config), checkpoint_dir, ENCODER_PREFIX)

    @torch.inference_mode()
    def encode(self, pcm: Tensor) -> Tensor:
        """Encodes a whole recording: float [n] in [-1, 1], 24 kHz mono -> int64 [ceil(n / 1920), 16]."""
        x = self.encoder(pcm[None, None])
        x = self.encoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        codes: Tensor = self.quantizer(self.downsample(x).transpose(1, 2))
        return codes[0]


class PaddedConv(nn.Module):
    """A causal strided convolution with ceil(n / stride) outputs.

    It pads its left context in front, and behind what completes the last step.
    """

    pad_mode = "constant"

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1, bias: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, bias=bias)
        self.stride, self.reach = stride, (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, inputs, n] to [B, outputs, ceil(n / stride)]."""
        result: Tensor = self.conv(pad(x, (self.reach, -x.shape[2] % self.stride), mode=self.pad_mode))
        return result


class EncoderResidualUnit(nn.Module):
    """x + conv1(elu(conv3(elu(x)))), with fewer channels in between."""

    def __init__(self, config: EncoderConfig, width: int, dilation: int) -> None:
        super().__init__()
        narrow = width // config.compress
        self.block = nn.ModuleList(
            [
                nn.ELU(),
                PaddedConv(width, narrow, config.residual_kernel_size, dilation=dilation),
                nn.ELU(),
                PaddedConv(narrow, width, 1),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, width, n] to the same shape."""
        branch = x
        for layer in self.block:
            branch = layer(branch)
        return x + branch


class SeanetEncoder(nn.Module):
    """The encoder of SEANet: samples at 24 kHz to vectors at 25 Hz."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.num_filters
        layers: list[nn.Module] = [PaddedConv(1, width, config.kernel_size)]
        for stride in config.strides:
            dilations = [config.dilation_growth_rate**unit for unit in range(config.num_residual_layers)]
            layers += [EncoderResidualUnit(config, width, dilation) for dilation in dilations]
            layers += [nn.ELU(), PaddedConv(width, 2 * width, 2 * stride, stride)]
            width *= 2
        layers += [nn.ELU(), PaddedConv(width, config.hidden_size, config.last_kernel_size)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, 1, n] to [B, hidden, n / 960]."""
        for layer in self.layers:
            x = layer(x)
        return x


class EncoderTransformer(nn.Module):
    """Transformer with causal attention over a sliding window."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(EncoderTransformerLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, hidden] to the same shape."""
        steps, config = x.shape[1], self.config
        now = torch.arange(steps)
        age = now[:, None] - now
        mask = age >= 0
        if config.sliding_window is not None:
            mask &= age < config.sliding_window
        pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        angles = (now[:, None] * config.rope_theta**-pairs).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return x


class EncoderTransformerLayer(nn.Module):
    """LayerNorm, attention, LayerNorm, MLP, with a scale per channel on each branch."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.self_attn = EncoderAttention(config)
        self.self_attn_layer_scale = ChannelScale(config.hidden_size)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.mlp = EncoderMlp(config)
        self.mlp_layer_scale = ChannelScale(config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Maps [B, T, hidden] to the same shape; `mask`: bool [T, T], positions that attention sees."""
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), cos, sin, mask))
        branch: Tensor = self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return x + branch


class EncoderAttention(nn.Module):
    """Multi-head attention; the rotary embedding pairs channel i with i + head_dim / 2."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(config.hidden_size, config.hidden_size, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Maps [B, T, hidden] to the same shape."""
        query, key, value = (
            project(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (y * cos + _rotate_half(y) * sin for y in (query, key))
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        result: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return result


class EncoderMlp(nn.Module):
    """Linear, GELU, linear; no biases."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, hidden] to the same shape."""
        result: Tensor = self.fc2(gelu(self.fc1(x)))
        return result


class ChannelScale(nn.Module):
    """Multiplies every channel by a learned factor."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [..., channels] to the same shape."""
        return x * self.scale


def _rotate_half(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=3)
    return torch.cat((-right, left), dim=3)
