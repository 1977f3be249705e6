"""The configuration of the published checkpoints (docs/qwen3_tts.md, sections 2.1 to 2.4)."""

from __future__ import annotations

import copy
from typing import Any

PUBLISHED_LAYERS = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
}

PUBLISHED: dict[str, Any] = {
    "architectures": ["Qwen3TTSForConditionalGeneration"],
    "model_type": "qwen3_tts",
    "tokenizer_type": "qwen3_tts_tokenizer_12hz",
    "tts_model_size": "1b7",
    "tts_model_type": "custom_voice",
    "assistant_token_id": 77091,
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "tts_pad_token_id": 151671,
    "tts_bos_token_id": 151672,
    "tts_eos_token_id": 151673,
    "talker_config": {
        **PUBLISHED_LAYERS,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "vocab_size": 3072,
        "text_vocab_size": 151936,
        "text_hidden_size": 2048,
        "num_code_groups": 16,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "codec_language_id": {
            "chinese": 2055,
            "english": 2050,
            "german": 2053,
            "italian": 2070,
            "portuguese": 2071,
            "spanish": 2054,
            "japanese": 2058,
            "korean": 2064,
            "french": 2061,
            "russian": 2069,
            "beijing_dialect": 2074,
            "sichuan_dialect": 2062,
        },
        "spk_id": {
            "serena": 3066,
            "vivian": 3065,
            "uncle_fu": 3010,
            "ryan": 3061,
            "aiden": 2861,
            "ono_anna": 2873,
            "sohee": 2864,
            "eric": 2875,
            "dylan": 2878,
        },
        "spk_is_dialect": {
            "serena": False,
            "vivian": False,
            "uncle_fu": False,
            "ryan": False,
            "aiden": False,
            "ono_anna": False,
            "sohee": False,
            "eric": "sichuan_dialect",
            "dylan": "beijing_dialect",
        },
        "code_predictor_config": {
            **PUBLISHED_LAYERS,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 5,
            "vocab_size": 2048,
            "num_code_groups": 16,
        },
    },
}

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
    "max_new_tokens": 8192,
}


def published_config(model_type: str, model_size: str) -> dict[str, Any]:
    """Returns the config.json of one of the five published checkpoints."""
    config = copy.deepcopy(PUBLISHED) | {"tts_model_type": model_type, "tts_model_size": model_size}
    talker = config["talker_config"]
    if model_size == "0b6":
        talker |= {"hidden_size": 1024, "intermediate_size": 3072}
    if model_type != "custom_voice":
        talker |= {"spk_id": {}, "spk_is_dialect": {}}
        for dialect in ("beijing_dialect", "sichuan_dialect"):
            del talker["codec_language_id"][dialect]
    if model_type == "base":
        config["speaker_encoder_config"] = {"enc_dim": talker["hidden_size"], "sample_rate": 24000}
    return config


CODEC_ENCODER: dict[str, Any] = {
    "num_filters": 64,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "intermediate_size": 2048,
    "codebook_size": 2048,
    "codebook_dim": 256,
    "num_quantizers": 32,
}
