"""Step: writes a checkpoint folder in the published format. `python -m train.export COLLECTED TOKENIZER OUT`

COLLECTED: the output of train.collect, or a work folder. Weights are in half precision with the published tensor names
(`docs/qwen3_tts.md`, section 11); untrained rows of the codec vocabulary are zero. Properties of the
voices and NOTICE are those in `checkpoint/`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from . import sizes
from .run_files import read_parts
from .sizes import DECODER, PREDICTOR, TALKER, LayerStackSize

CHECKPOINT = Path(__file__).parent / "checkpoint"
"""Files of the checkpoint that are written by hand: properties of the voices, and the licences."""
HEAD = "codec_head.weight"
VOCABULARY_TABLES = ("model.codec_embedding.weight", HEAD)
END_FACTOR = 1.6
"""Of the head's row for the end of speech. Without it 57 of 320 utterances of one to three words went on with noise up
to their limit, then 32 frames, with it 21; longer ones end up to four frames earlier, in the silence at their end. With
2.0 fewer go on, but sentences lose 1.7 frames at the mean instead of 0.8."""


def published_talker(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The talker's tensors in float16 with the prefix `talker.`, the codec vocabulary padded with zeros.

    The row of the head for the end of speech is multiplied by END_FACTOR.
    """
    published = {}
    for name, value in state.items():
        if name == HEAD:
            value = value.clone()
            value[sizes.CODEC_EOS] *= END_FACTOR
        if name in VOCABULARY_TABLES:
            spare = value.new_zeros(sizes.PUBLISHED_ROWS - len(value), value.shape[1])
            value = torch.cat([value, spare])
        published["talker." + name] = value.half().contiguous()
    return published


def _transformer(size: LayerStackSize) -> dict[str, Any]:
    return {
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "rms_norm_eps": size.norm_eps,
        "rope_theta": size.rope_theta,
        "num_code_groups": sizes.CODEBOOKS,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
    }


def talker_config() -> dict[str, Any]:
    """Content of config.json."""
    rope = {"rope_type": "default", "type": "default", "interleaved": True, "mrope_section": [12, 10, 10]}
    predictor = {
        "vocab_size": sizes.CODEBOOK_SIZE,
        **_transformer(PREDICTOR),
        "model_type": "qwen3_tts_talker_code_predictor",
        "rope_scaling": None,
    }
    talker = {
        "vocab_size": sizes.PUBLISHED_ROWS,
        "text_vocab_size": sizes.TEXT_VOCABULARY,
        "text_hidden_size": sizes.TEXT_HIDDEN,
        **_transformer(TALKER),
        "model_type": "qwen3_tts_talker",
        "rope_scaling": rope,
        "code_predictor_config": predictor,
        "codec_eos_token_id": sizes.CODEC_EOS,
        "codec_think_id": sizes.CODEC_THINK,
        "codec_nothink_id": sizes.CODEC_NOTHINK,
        "codec_think_bos_id": sizes.CODEC_THINK_BOS,
        "codec_think_eos_id": sizes.CODEC_THINK_EOS,
        "codec_pad_id": sizes.CODEC_PAD,
        "codec_bos_id": sizes.CODEC_BOS,
        "spk_id": sizes.SPEAKERS,
        "spk_is_dialect": dict.fromkeys(sizes.SPEAKERS, False),
        "codec_language_id": {},
    }
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": "tiny",
        "tts_model_type": "custom_voice",
        "im_start_token_id": sizes.IM_START,
        "im_end_token_id": sizes.IM_END,
        "assistant_token_id": sizes.ASSISTANT,
        "tts_pad_token_id": sizes.TEXT_PAD,
        "tts_bos_token_id": sizes.TEXT_BOS,
        "tts_eos_token_id": sizes.TEXT_EOS,
        "talker_config": talker,
        "torch_dtype": "float16",
        "newline_token_id": sizes.NEWLINE,
    }


def generation_config(temperature: float, predictor_temperature: float) -> dict[str, Any]:
    """Content of generation_config.json. `max_new_tokens`: the frames of the longest row in training."""
    return {
        "do_sample": True,
        "temperature": temperature,
        "top_k": 50,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
        "subtalker_dosample": True,
        "subtalker_temperature": predictor_temperature,
        "subtalker_top_k": 50,
        "subtalker_top_p": 1.0,
        "max_new_tokens": 620,
    }


def codec_config() -> dict[str, Any]:
    """Content of speech_tokenizer/config.json."""
    layers = DECODER.transformer
    decoder = {
        "codebook_size": sizes.CODEBOOK_SIZE,
        "codebook_dim": DECODER.codebook_dim,
        "num_quantizers": sizes.CODEBOOKS,
        "latent_dim": DECODER.latent,
        "hidden_size": layers.hidden,
        "intermediate_size": layers.intermediate,
        "num_hidden_layers": layers.layers,
        "num_attention_heads": layers.heads,
        "num_key_value_heads": layers.kv_heads,
        "head_dim": layers.head_dim,
        "sliding_window": DECODER.sliding_window,
        "rope_theta": layers.rope_theta,
        "rms_norm_eps": layers.norm_eps,
        "layer_scale_initial_scale": layers.layer_scale,
        "upsampling_ratios": list(DECODER.upsampling_ratios),
        "upsample_rates": list(DECODER.upsample_rates),
        "decoder_dim": DECODER.vocoder,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 8000,
    }
    return {
        "model_type": "qwen3_tts_tokenizer_12hz",
        "decoder_config": decoder,
        "encoder_config": None,
        "input_sample_rate": sizes.SAMPLE_RATE_HZ,
        "output_sample_rate": sizes.SAMPLE_RATE_HZ,
        "decode_upsample_rate": sizes.FRAME_SAMPLES,
        "encode_downsample_rate": sizes.FRAME_SAMPLES,
        "encoder_valid_num_quantizers": sizes.CODEBOOKS,
    }


def export(collected: Path, tokenizer: Path, out: Path, temperature: float, predictor_temperature: float) -> None:
    """Write the checkpoint folder `out`."""
    codec = out / "speech_tokenizer"
    codec.mkdir(parents=True, exist_ok=True)
    metadata = {"format": "pt"}
    save_file(published_talker(read_parts(collected, "talker")), out / "model.safetensors", metadata=metadata)
    decoder = {"decoder." + k: v.half().contiguous() for k, v in read_parts(collected, "decoder").items()}
    save_file(decoder, codec / "model.safetensors", metadata=metadata)
    for path, content in (
        (out / "config.json", talker_config()),
        (out / "generation_config.json", generation_config(temperature, predictor_temperature)),
        (codec / "config.json", codec_config()),
    ):
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if tokenizer.resolve() != (out / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, out / "tokenizer.json")
    for path in (CHECKPOINT / "voice.toml", CHECKPOINT / "NOTICE"):
        shutil.copyfile(path, out / path.name)
    for path in (out / "model.safetensors", codec / "model.safetensors"):
        path.chmod(0o644)  # safetensors creates files that only their owner can read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collected", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--predictor-temperature", type=float, default=0.45)
    args = parser.parse_args()
    export(args.collected, args.tokenizer, args.out, args.temperature, args.predictor_temperature)


if __name__ == "__main__":
    main()
