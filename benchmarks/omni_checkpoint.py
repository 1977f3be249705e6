"""Makes a random checkpoint for vLLM-Omni: `python -m voxgate.benchmarks.omni_checkpoint SIZE FOLDER`.

vLLM-Omni 0.26 needs files of a published checkpoint that voxgate does without: the speech tokenizer's encoder, and the
configurations of tokenizer and feature extractor that Transformers reads. The rest is made by `random_checkpoint`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from .random_checkpoint import write_json, write_random_checkpoint

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
"""As published. The positions of the talker are the same in all three sections."""
QUANTIZERS = ("rvq_first", "rvq_rest")


def write_omni_checkpoint(folder: Path, size: str, device: str = "cpu") -> None:
    """Writes a checkpoint of `size` that both servers read into the empty or new `folder`. Needs Transformers."""
    from safetensors.torch import load_file, save_file

    write_random_checkpoint(folder, size, device)
    _change(folder / "config.json", talker_config_for_omni)
    write_json(folder / "tokenizer_config.json", TOKENIZER)
    speech = folder / "speech_tokenizer"
    for each in (folder, speech):
        write_json(each / "preprocessor_config.json", FEATURES)
    _change(speech / "config.json", lambda document: document | SPEECH_TOKENIZER)
    weights = load_file(speech / "model.safetensors")
    save_file(weights | missing_projections(weights) | _encoder(), speech / "model.safetensors")


def talker_config_for_omni(document: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint's config.json with the fields that vLLM-Omni reads in addition."""
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
    """Random input projections of the quantizers, which only encoding uses; the checkpoint has output projections."""
    import torch

    projections = {}
    for name in QUANTIZERS:
        out = weights[f"decoder.quantizer.{name}.output_proj.weight"]
        projections[f"decoder.quantizer.{name}.input_proj.weight"] = torch.randn(out.transpose(0, 1).shape) * 0.02
    return projections


def _encoder() -> dict[str, Tensor]:
    from transformers import MimiConfig, MimiModel

    encoder = MimiModel(MimiConfig())
    # The decoder is the checkpoint's own.
    for part in ("upsample", "decoder_transformer", "decoder"):
        setattr(encoder, part, None)
    return {f"encoder.{name}": tensor.detach().contiguous().clone() for name, tensor in encoder.state_dict().items()}


def _change(path: Path, change: Any) -> None:
    write_json(path, change(json.loads(path.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    import torch

    write_omni_checkpoint(Path(sys.argv[2]), sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu")
