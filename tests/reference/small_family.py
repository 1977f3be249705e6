"""A very small model of each kind, in the published format, the same on both sides of the comparison.

Weights are a function of their name and shape, so that neither side has to be given them. Needs NumPy alone, since the
reference's environment has little else in common with ours.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from small_tokenizer import write_json, write_tokenizer

CODEBOOK = 64
GROUPS = 16
EOS = CODEBOOK + 102
SPEAKERS = {"ryan": 1077, "eric": 891, "dylan": 894}
DIALECTS = {"ryan": False, "eric": "sichuan_dialect", "dylan": "beijing_dialect"}
LANGUAGES = {"english": 66, "german": 69, "chinese": 71, "sichuan_dialect": 78, "beijing_dialect": 90}
NARROW = 32
"""Width of the code predictor."""


@dataclass(frozen=True)
class Variant:
    """A kind of model. `hidden`: width of the talker, which may differ from that of the code predictor."""

    model_type: str
    model_size: str
    hidden: int

    @property
    def name(self) -> str:
        return f"{self.model_size}-{self.model_type}"


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("custom_voice", "0b6", NARROW),
        Variant("custom_voice", "1b7", 48),
        Variant("voice_design", "1b7", 48),
        Variant("base", "0b6", NARROW),
        Variant("base", "1b7", 48),
    )
}

# The configuration


def layers(hidden: int, count: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": 64,
        "num_hidden_layers": count,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "max_position_embeddings": 4096,
        "attention_bias": False,
        "attention_dropout": 0,
        "use_sliding_window": False,
        "sliding_window": None,
        "num_code_groups": GROUPS,
    }


def config(variant: Variant, ids: Mapping[str, int], transformers_version: str = "4.57.3") -> dict[str, Any]:
    """config.json. `ids`: the tokenizer's whole vocabulary."""
    named = variant.model_type == "custom_voice"
    document: dict[str, Any] = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": variant.model_size,
        "tts_model_type": variant.model_type,
        "assistant_token_id": ids["assistant"],
        "newline_token_id": ids["\u010a"],
        "im_start_token_id": ids["<|im_start|>"],
        "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"],
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
        "transformers_version": transformers_version,
        "talker_config": {
            **layers(variant.hidden, 2),
            "model_type": "qwen3_tts_talker",
            "rope_scaling": {
                "interleaved": True,
                "mrope_section": [6, 5, 5],
                "rope_type": "default",
                "type": "default",
            },
            "vocab_size": CODEBOOK + 1024,
            "text_vocab_size": len(ids) + 2,
            "text_hidden_size": 24,
            "codec_pad_id": CODEBOOK + 100,
            "codec_bos_id": CODEBOOK + 101,
            "codec_eos_token_id": EOS,
            "codec_think_id": CODEBOOK + 106,
            "codec_nothink_id": CODEBOOK + 107,
            "codec_think_bos_id": CODEBOOK + 108,
            "codec_think_eos_id": CODEBOOK + 109,
            "spk_id": SPEAKERS if named else {},
            "spk_is_dialect": DIALECTS if named else {},
            "codec_language_id": {k: v for k, v in LANGUAGES.items() if named or "dialect" not in k},
            "code_predictor_config": {
                **layers(NARROW, 2),
                "model_type": "qwen3_tts_talker_code_predictor",
                "rope_scaling": None,
                "vocab_size": CODEBOOK,
            },
        },
    }
    if variant.model_type == "base":
        document["speaker_encoder_config"] = {"enc_dim": variant.hidden, "sample_rate": 24000}
    return document


GENERATION = {
    "do_sample": True,
    "repetition_penalty": 1.05,
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 50,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_p": 1.0,
    "subtalker_top_k": 50,
    "max_new_tokens": 256,
}

CODEC = {
    "architectures": ["Qwen3TTSTokenizerV2Model"],
    "model_type": "qwen3_tts_tokenizer_12hz",
    "encoder_valid_num_quantizers": GROUPS,
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
    "encode_downsample_rate": 1920,
    "transformers_version": "4.57.3",
    "decoder_config": {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "latent_dim": 32,
        "codebook_dim": 32,
        "codebook_size": CODEBOOK,
        "decoder_dim": 32,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "head_dim": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_quantizers": GROUPS,
        "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "semantic_codebook_size": CODEBOOK,
        "sliding_window": 6,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "vector_quantization_hidden_dimension": 32,
    },
    "encoder_config": {
        "_frame_rate": 12.5,
        "audio_channels": 1,
        "codebook_dim": 32,
        "codebook_size": CODEBOOK,
        "head_dim": 32,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_filters": 8,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_quantizers": 32,
        "sampling_rate": 24000,
        "sliding_window": 10,
        "upsampling_ratios": [8, 6, 5, 4],
        "upsample_groups": 64,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "vector_quantization_hidden_dimension": 32,
    },
}

FEATURES = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24000,
}

# The weights


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """float32 [shape]: values of plausible scale determined by name and shape."""
    noise = np.random.RandomState(zlib.crc32(f"{name} {shape}".encode())).standard_normal(shape)
    if name.endswith("initialized"):
        values = np.ones(shape)
    elif name.endswith(("norm.weight", "cluster_usage")):
        values = 1 + 0.2 * noise.clip(-2, 2)
    elif name.endswith((".alpha", ".beta", ".bias", ".scale", ".gamma")):
        values = 0.1 * noise + name.endswith(".beta")
    elif "embed" in name:
        values = noise
    elif name.startswith("codec encoder.encoder."):
        # Large, so that the recording still has an effect behind many layers with biases.
        values = 1.6 * noise * np.prod(shape[1:]) ** -0.5
    else:
        values = 0.8 * noise * np.prod(shape[1:]) ** -0.5
    if name == "talker.codec_head.weight":
        # Lets speech end sometimes, which does not happen by chance among so many codes.
        values[EOS] *= 2
    return values.astype(np.float32)


Shapes = Mapping[str, tuple[int, ...]]
Save = Callable[[dict[str, np.ndarray], Path], None]


def write_checkpoint(
    folder: Path, variant: Variant, shapes: Callable[[Path], tuple[Shapes, Shapes]], save: Save
) -> None:
    """Write a whole checkpoint folder.

    `shapes`: given the folder with its configuration, every tensor's shape by its name in the talker's and the codec's
    file.
    """
    (folder / "speech_tokenizer").mkdir(parents=True)
    ids = write_tokenizer(folder)
    write_json(folder / "config.json", config(variant, ids))
    write_json(folder / "generation_config.json", GENERATION)
    write_json(folder / "preprocessor_config.json", {"processor_class": "Qwen3TTSProcessor"})
    write_json(folder / "speech_tokenizer" / "config.json", CODEC)
    write_json(folder / "speech_tokenizer" / "preprocessor_config.json", FEATURES)
    talker, codec = shapes(folder)
    save({name: weight(name, shape) for name, shape in talker.items()}, folder / "model.safetensors")
    codec_file = folder / "speech_tokenizer" / "model.safetensors"
    save({name: weight(f"codec {name}", shape) for name, shape in codec.items()}, codec_file)
