"""Names and shapes of the decoder's tensors in the published format (docs/qwen3_tts.md, section 11.3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .checkpoint import Shape, find_tensors
from .config import DecoderConfig

DECODER_PREFIX = "decoder."
RESIDUAL_DILATIONS = (1, 3, 9)


def check_tensors(checkpoint_dir: Path, config: DecoderConfig) -> None:
    """Checks the decoder's tensors by the files' headers. Raises CodecFormatError naming all that do not fit."""
    find_tensors(checkpoint_dir, DECODER_PREFIX, tensor_shapes(config), is_ignored=is_encoder_only_tensor)


def tensor_shapes(config: DecoderConfig) -> dict[str, Shape]:
    """Returns the shapes of all tensors that decoding needs, by their names without `decoder.`."""
    return dict(_tensor_shapes(config))


def _tensor_shapes(c: DecoderConfig) -> Iterator[tuple[str, Shape]]:
    half = c.codebook_dim // 2
    for stack, layers in (("first", 1), ("rest", c.num_quantizers - 1)):
        for layer in range(layers):
            codebook = f"quantizer.rvq_{stack}.vq.layers.{layer}._codebook"
            yield f"{codebook}.embedding_sum", (c.codebook_size, half)
            yield f"{codebook}.cluster_usage", (c.codebook_size,)
        yield f"quantizer.rvq_{stack}.output_proj.weight", (c.codebook_dim, half, 1)
    yield from _biased("pre_conv.conv", (c.latent_dim, c.codebook_dim, 3))
    yield from _transformer_shapes(c)
    width = c.latent_dim
    for stage, ratio in enumerate(c.upsampling_ratios):
        yield from _biased(f"upsample.{stage}.0.conv", (width, width, ratio), outputs=width)
        next_ = f"upsample.{stage}.1"
        yield from _biased(f"{next_}.dwconv.conv", (width, 1, 7))
        yield from _biased(f"{next_}.norm", (width,))
        yield f"{next_}.gamma", (width,)
        yield from _biased(f"{next_}.pwconv1", (4 * width, width))
        yield from _biased(f"{next_}.pwconv2", (width, 4 * width))
    yield from _biased("decoder.0.conv", (c.decoder_dim, width, 7))
    widths = c.block_widths
    for index, rate in enumerate(c.upsample_rates):
        wide, narrow = widths[index], widths[index + 1]
        block = f"decoder.{index + 1}.block"
        yield from _snake(f"{block}.0", wide)
        yield from _biased(f"{block}.1.conv", (wide, narrow, 2 * rate), outputs=narrow)
        for unit in range(2, 2 + len(RESIDUAL_DILATIONS)):
            yield from _snake(f"{block}.{unit}.act1", narrow)
            yield from _biased(f"{block}.{unit}.conv1.conv", (narrow, narrow, 7))
            yield from _snake(f"{block}.{unit}.act2", narrow)
            yield from _biased(f"{block}.{unit}.conv2.conv", (narrow, narrow, 1))
    last = len(widths)
    yield from _snake(f"decoder.{last}", widths[-1])
    yield from _biased(f"decoder.{last + 1}.conv", (1, widths[-1], 7))


def _transformer_shapes(c: DecoderConfig) -> Iterator[tuple[str, Shape]]:
    yield from _biased("pre_transformer.input_proj", (c.hidden_size, c.latent_dim))
    for index in range(c.num_hidden_layers):
        layer = f"pre_transformer.layers.{index}"
        yield f"{layer}.self_attn.q_proj.weight", (c.num_attention_heads * c.head_dim, c.hidden_size)
        for name in "kv":
            yield f"{layer}.self_attn.{name}_proj.weight", (c.num_key_value_heads * c.head_dim, c.hidden_size)
        yield f"{layer}.self_attn.o_proj.weight", (c.hidden_size, c.num_attention_heads * c.head_dim)
        for name in ("gate", "up"):
            yield f"{layer}.mlp.{name}_proj.weight", (c.intermediate_size, c.hidden_size)
        yield f"{layer}.mlp.down_proj.weight", (c.hidden_size, c.intermediate_size)
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            yield f"{layer}.{name}", (c.hidden_size,)
        for name in ("self_attn_layer_scale.scale", "mlp_layer_scale.scale"):
            yield f"{layer}.{name}", (c.hidden_size,)
    yield "pre_transformer.norm.weight", (c.hidden_size,)
    yield from _biased("pre_transformer.output_proj", (c.latent_dim, c.hidden_size))


def _biased(name: str, shape: Shape, outputs: int | None = None) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", (outputs or shape[0],)


def _snake(name: str, channels: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.alpha", (channels,)
    yield f"{name}.beta", (channels,)


def is_encoder_only_tensor(name: str) -> bool:
    """Returns whether a tensor is an input projection of the quantizer, which only encoding uses."""
    return name.startswith("quantizer.") and ".input_proj." in name
