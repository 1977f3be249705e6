"""A random checkpoint as vLLM-Omni asks for it: `python -m voxgate.benchmarks.omni_checkpoint SIZE FOLDER`.

vLLM-Omni 0.26 wants files that a published checkpoint has and ours do without: the speech tokenizer's encoder, which
only hears recordings, and what Transformers reads of tokenizers and features. What is common is `random_checkpoint`'s.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from .random_checkpoint import write_random_checkpoint

TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 131_072, "pad_token": "<|endoftext|>"}
FEATURES = {
    "feature_extractor_type": "EncodecFeatureExtractor", "sampling_rate": 24_000, "feature_size": 1,
    "padding_side": "right", "padding_value": 0.0, "return_attention_mask": True,
}  # fmt: skip  # one document
SPEECH_TOKENIZER = {
    "model_type": "qwen3_tts_tokenizer_12hz", "architectures": ["Qwen3TTSTokenizerV2Model"], "encoder_config": {},
    "encoder_valid_num_quantizers": 16, "input_sample_rate": 24_000, "encode_downsample_rate": 1920,
}  # fmt: skip  # one document
ROTARY = {"rope_type": "default", "type": "default", "interleaved": True, "mrope_section": [24, 20, 20]}
"""As published: a talker's positions are the same in all three sections."""
QUANTIZERS = ("rvq_first", "rvq_rest")


def write_omni_checkpoint(folder: Path, size: str, device: str = "cpu") -> None:
    """Write a checkpoint of `size` for both servers into the empty or new `folder`. Needs Transformers."""
    from safetensors.torch import load_file, save_file

    write_random_checkpoint(folder, size, device)
    _change(folder / "config.json", talker_config_for_omni)
    _write(folder / "tokenizer_config.json", TOKENIZER)
    speech = folder / "speech_tokenizer"
    for place in (folder, speech):
        _write(place / "preprocessor_config.json", FEATURES)
    _change(speech / "config.json", lambda document: document | SPEECH_TOKENIZER)
    weights = load_file(speech / "model.safetensors")
    save_file(weights | missing_projections(weights) | _encoder(), speech / "model.safetensors")


def talker_config_for_omni(document: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint's config.json, with what vLLM-Omni reads besides."""
    talker = document["talker_config"]
    predictor = talker["code_predictor_config"] | {"max_position_embeddings": 65_536, "rope_scaling": None}
    changes = {
        "rope_scaling": ROTARY,
        "max_position_embeddings": 32_768,
        "position_id_per_seconds": 13,
        "code_predictor_config": predictor,
    }
    return document | {"architectures": ["Qwen3TTSForConditionalGeneration"], "talker_config": talker | changes}


def missing_projections(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Into the quantizers, where there is only the way out of them: random, as for encoding nobody uses them."""
    import torch

    made = {}
    for name in QUANTIZERS:
        out = weights[f"decoder.quantizer.{name}.output_proj.weight"]
        made[f"decoder.quantizer.{name}.input_proj.weight"] = torch.randn(out.transpose(0, 1).shape) * 0.02
    return made


def _encoder() -> dict[str, Tensor]:
    from transformers import MimiConfig, MimiModel

    encoder = MimiModel(MimiConfig())
    # The half that makes sound of codes is the checkpoint's own.
    for part in ("upsample", "decoder_transformer", "decoder"):
        setattr(encoder, part, None)
    return {f"encoder.{name}": tensor.detach().contiguous().clone() for name, tensor in encoder.state_dict().items()}


def _change(path: Path, change: Any) -> None:
    _write(path, change(json.loads(path.read_text(encoding="utf-8"))))


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")


if __name__ == "__main__":
    import torch

    write_omni_checkpoint(Path(sys.argv[2]), sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu")
