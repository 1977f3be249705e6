"""Names and shapes of the talker's tensors in the published format (docs/qwen3_tts.md, section 11.1), checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from voxgate.codecs.neural.checkpoint import CodecFormatError, Shape, find_tensors

from ..errors import CheckpointError
from .checkpoint import TalkerCheckpoint, TransformerSize

PREFIX = "talker."


def check_weights(checkpoint: TalkerCheckpoint) -> list[Path]:
    """Returns the files that hold the talker's weights; reads their headers only.

    Raises CheckpointError listing missing, surplus and wrongly shaped tensors. Other tensors, such as those of a
    speaker encoder, are ignored.
    """
    try:
        return sorted(find_tensors(checkpoint.folder, PREFIX, tensor_shapes(checkpoint)))
    except CodecFormatError as error:
        raise CheckpointError(str(error)) from error


def tensor_shapes(checkpoint: TalkerCheckpoint) -> dict[str, Shape]:
    """Returns the shapes of all tensors of the talker and its code predictor, by their names without `talker.`."""
    return dict(_tensor_shapes(checkpoint))


def _tensor_shapes(c: TalkerCheckpoint) -> Iterator[tuple[str, Shape]]:
    hidden, narrow = c.talker.hidden, c.predictor.hidden
    yield "model.text_embedding.weight", (c.text_vocab, c.text_hidden)
    yield "model.codec_embedding.weight", (c.codec_vocab, hidden)
    yield from _biased("text_projection.linear_fc1", c.text_hidden, c.text_hidden)
    yield from _biased("text_projection.linear_fc2", hidden, c.text_hidden)
    yield from _transformer("model.", c.talker)
    yield "codec_head.weight", (c.codec_vocab, hidden)
    if hidden != narrow:
        yield from _biased("code_predictor.small_to_mtp_projection", narrow, hidden)
    yield from _transformer("code_predictor.model.", c.predictor)
    for group in range(c.groups - 1):
        yield f"code_predictor.model.codec_embedding.{group}.weight", (c.codebook, hidden)
        yield f"code_predictor.lm_head.{group}.weight", (c.codebook, narrow)


def _transformer(prefix: str, size: TransformerSize) -> Iterator[tuple[str, Shape]]:
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    for number in range(size.layers):
        layer = f"{prefix}layers.{number}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{norm}.weight", (size.hidden,)
        yield f"{layer}self_attn.q_proj.weight", (queries, size.hidden)
        for part in "kv":
            yield f"{layer}self_attn.{part}_proj.weight", (keys, size.hidden)
        yield f"{layer}self_attn.o_proj.weight", (size.hidden, queries)
        for part in "qk":
            yield f"{layer}self_attn.{part}_norm.weight", (size.head_dim,)
        for part in ("gate", "up"):
            yield f"{layer}mlp.{part}_proj.weight", (size.intermediate, size.hidden)
        yield f"{layer}mlp.down_proj.weight", (size.hidden, size.intermediate)
    yield f"{prefix}norm.weight", (size.hidden,)


def _biased(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)
