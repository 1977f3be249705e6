"""A talker of a few thousand random numbers, with the published tensor names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import CodecIds, TalkerCheckpoint, TextIds, TransformerSize

PREDICTOR = "talker.code_predictor."


def small_checkpoint(
    checkpoint: TalkerCheckpoint, *, hidden: int = 24, groups: int = 4, kv_heads: int = 2
) -> TalkerCheckpoint:
    """`checkpoint` with the sizes of the small model; the predictor is 16 wide, of 2 layers and 4 heads."""
    predictor = TransformerSize(16, 32, 2, 4, kv_heads, 8, 1e-6, 10_000.0)
    return replace(
        checkpoint,
        talker=replace(predictor, hidden=hidden),
        predictor=predictor,
        text_vocab=30,
        text_hidden=12,
        codec_vocab=40,
        codebook=20,
        groups=groups,
        text_ids=TextIds(im_start=20, im_end=21, assistant=22, newline=23, pad=24, bos=25, eos=26),
        codec_ids=CodecIds(pad=20, bos=21, eos=22, think=23, nothink=24, think_bos=25, think_eos=26),
        speakers={"heart": 30},
    )


def plain_config(size: TransformerSize) -> dict[str, Any]:
    """The same sizes under the names of config.json, for `plain_talker.Stack`."""
    return {
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "rms_norm_eps": size.norm_eps,
        "rope_theta": size.rope_theta,
    }


def small_weights(checkpoint: TalkerCheckpoint, seed: int = 0) -> dict[str, Tensor]:
    """Everything of the talker but its own layers, float32."""
    generator = torch.Generator().manual_seed(seed)
    size, hidden, book = checkpoint.predictor, checkpoint.talker.hidden, checkpoint.codebook
    weights: dict[str, Tensor] = {}

    def matrix(name: str, *shape: int) -> None:
        weights[f"{name}.weight"] = torch.randn(shape, generator=generator) * shape[-1] ** -0.5

    def norm(name: str, width: int) -> None:
        weights[f"{name}.weight"] = 0.5 + torch.rand(width, generator=generator)

    def bias(name: str, width: int) -> None:
        weights[f"{name}.bias"] = torch.randn(width, generator=generator)

    matrix("talker.model.text_embedding", checkpoint.text_vocab, checkpoint.text_hidden)
    matrix("talker.model.codec_embedding", checkpoint.codec_vocab, hidden)
    matrix("talker.codec_head", checkpoint.codec_vocab, hidden)
    for part, width in (("fc1", checkpoint.text_hidden), ("fc2", hidden)):
        matrix(f"talker.text_projection.linear_{part}", width, checkpoint.text_hidden)
        bias(f"talker.text_projection.linear_{part}", width)
    if hidden != size.hidden:
        matrix(f"{PREDICTOR}small_to_mtp_projection", size.hidden, hidden)
        bias(f"{PREDICTOR}small_to_mtp_projection", size.hidden)
    for group in range(checkpoint.groups - 1):
        matrix(f"{PREDICTOR}model.codec_embedding.{group}", book, hidden)
        matrix(f"{PREDICTOR}lm_head.{group}", book, size.hidden)
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    for layer in range(size.layers):
        name = f"{PREDICTOR}model.layers.{layer}."
        norm(name + "input_layernorm", size.hidden)
        norm(name + "post_attention_layernorm", size.hidden)
        norm(name + "self_attn.q_norm", size.head_dim)
        norm(name + "self_attn.k_norm", size.head_dim)
        matrix(name + "self_attn.q_proj", queries, size.hidden)
        matrix(name + "self_attn.k_proj", keys, size.hidden)
        matrix(name + "self_attn.v_proj", keys, size.hidden)
        matrix(name + "self_attn.o_proj", size.hidden, queries)
        matrix(name + "mlp.gate_proj", size.intermediate, size.hidden)
        matrix(name + "mlp.up_proj", size.intermediate, size.hidden)
        matrix(name + "mlp.down_proj", size.hidden, size.intermediate)
    norm(f"{PREDICTOR}model.norm", size.hidden)
    return weights
