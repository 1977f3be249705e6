"""Makes checkpoints of the published sizes with random weights, which are as fast as trained ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import Tensor

WIDTHS = {"0.6B": (1024, 3072), "1.7B": (2048, 6144)}
"""Hidden and intermediate width of the talker, by the published sizes."""
LAYERS, HEADS, KV_HEADS, HEAD_DIM = 28, 16, 8, 128
TEXT_VOCAB, CODEC_VOCAB, CODEBOOK, GROUPS = 151_936, 3072, 2048, 16
PREDICTOR = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 5, "vocab_size": CODEBOOK}
CODEC = {
    "codebook_size": CODEBOOK, "codebook_dim": 512, "num_quantizers": GROUPS, "latent_dim": 1024, "hidden_size": 512,
    "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 16,
    "head_dim": 64, "sliding_window": 72, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "decoder_dim": 1536,
    "upsampling_ratios": [2, 2], "upsample_rates": [8, 5, 4, 3],
}  # fmt: skip  # as published

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def write_random_checkpoint(
    folder: Path, size: str, device: str = "cpu", seed: int = 0, model_type: str = "custom_voice"
) -> None:
    """Writes a checkpoint of `size`, with the demo voice's tokenizer, into the empty or new `folder`.

    Unlike published ones, one of `model_type` "base" has a named voice too, and no encoders.

    Its speech ends at the maximum length only: the head's row for the end of speech is zero and never likely.
    """
    import torch
    from safetensors.torch import save_file
    from voxgate.codecs.neural.config import DecoderConfig
    from voxgate.codecs.neural.weights import random_tensors

    demo = Path(str(files("voxgate.voices"))) / "demo"
    (folder / "speech_tokenizer").mkdir(parents=True)
    shutil.copy(demo / "tokenizer.json", folder)
    config = _config(json.loads((demo / "config.json").read_text(encoding="utf-8")), size, model_type)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", GENERATION)
    codec = {"decoder_config": CODEC, "output_sample_rate": 24_000, "decode_upsample_rate": 1920}
    write_json(folder / "speech_tokenizer" / "config.json", codec)

    generator = torch.Generator(device).manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, shape in talker_shapes(size):
        if len(shape) == 1:
            fill = torch.zeros if name.endswith(".bias") else torch.ones
            weights[name] = fill(shape, dtype=torch.bfloat16)
        else:
            drawn = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
            weights[name] = (drawn * shape[-1] ** -0.5).cpu()
    weights["talker.codec_head.weight"][config["talker_config"]["codec_eos_token_id"]] = 0
    save_file(weights, folder / "model.safetensors")
    codec_tensors = random_tensors(DecoderConfig.from_document(codec), seed)
    save_file(
        {f"decoder.{name}": tensor.float() for name, tensor in codec_tensors.items()},
        folder / "speech_tokenizer" / "model.safetensors",
    )


GENERATION = {
    "do_sample": True, "repetition_penalty": 1.05, "temperature": 0.9, "top_p": 1.0, "top_k": 50,
    "subtalker_dosample": True, "subtalker_temperature": 0.9, "subtalker_top_p": 1.0, "subtalker_top_k": 50,
    "max_new_tokens": 8192,
}  # fmt: skip  # as published


def talker_shapes(size: str) -> Shapes:
    """Every tensor of the talker and its code predictor, by its published name (docs/qwen3_tts.md, section 11.1)."""
    hidden, inner = WIDTHS[size]
    yield "talker.model.text_embedding.weight", (TEXT_VOCAB, 2048)
    yield "talker.model.codec_embedding.weight", (CODEC_VOCAB, hidden)
    yield "talker.codec_head.weight", (CODEC_VOCAB, hidden)
    for layer, width in (("fc1", 2048), ("fc2", hidden)):
        yield f"talker.text_projection.linear_{layer}.weight", (width, 2048)
        yield f"talker.text_projection.linear_{layer}.bias", (width,)
    yield from _stack("talker.model.", LAYERS, hidden, inner)
    predictor = "talker.code_predictor."
    width = PREDICTOR["hidden_size"]
    if hidden != width:
        yield f"{predictor}small_to_mtp_projection.weight", (width, hidden)
        yield f"{predictor}small_to_mtp_projection.bias", (width,)
    yield from _stack(f"{predictor}model.", PREDICTOR["num_hidden_layers"], width, PREDICTOR["intermediate_size"])
    for group in range(GROUPS - 1):
        yield f"{predictor}model.codec_embedding.{group}.weight", (CODEBOOK, hidden)
        yield f"{predictor}lm_head.{group}.weight", (CODEBOOK, width)


def _stack(prefix: str, layers: int, hidden: int, inner: int) -> Shapes:
    for index in range(layers):
        layer = f"{prefix}layers.{index}."
        yield f"{layer}input_layernorm.weight", (hidden,)
        yield f"{layer}post_attention_layernorm.weight", (hidden,)
        for name in "qk":
            yield f"{layer}self_attn.{name}_norm.weight", (HEAD_DIM,)
        yield f"{layer}self_attn.q_proj.weight", (HEADS * HEAD_DIM, hidden)
        for name in "kv":
            yield f"{layer}self_attn.{name}_proj.weight", (KV_HEADS * HEAD_DIM, hidden)
        yield f"{layer}self_attn.o_proj.weight", (hidden, HEADS * HEAD_DIM)
        for name in ("gate", "up"):
            yield f"{layer}mlp.{name}_proj.weight", (inner, hidden)
        yield f"{layer}mlp.down_proj.weight", (hidden, inner)
    yield f"{prefix}norm.weight", (hidden,)


def _config(demo: dict[str, Any], size: str, model_type: str) -> dict[str, Any]:
    """The demo voice's config.json, whose text ids its tokenizer has, with the published sizes and codec ids."""
    hidden, inner = WIDTHS[size]
    attention = {
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "hidden_act": "silu", "num_code_groups": GROUPS,
    }  # fmt: skip  # as published
    talker = demo["talker_config"] | attention | {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": LAYERS, "vocab_size": CODEC_VOCAB,
        "text_vocab_size": TEXT_VOCAB, "text_hidden_size": 2048, "codec_pad_id": 2148, "codec_bos_id": 2149,
        "codec_eos_token_id": 2150, "codec_think_id": 2154, "codec_nothink_id": 2155, "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157, "codec_language_id": {"english": 2050}, "spk_id": {"ryan": 3061},
        "spk_is_dialect": {"ryan": False}, "code_predictor_config": attention | PREDICTOR,
    }  # fmt: skip  # as published
    return demo | {
        "tts_model_type": model_type,
        "torch_dtype": "bfloat16",
        "tts_model_size": "0b6" if size == "0.6B" else "1b7",
        "talker_config": talker,
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
