"""A small Base checkpoint with both encoders and no talker, in the published format."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import soundfile
from fakes.deterministic import stable_weights
from safetensors.torch import save_file
from voxgate.codecs.neural.config import EncoderConfig
from voxgate.codecs.neural.encoder import CodecEncoder

from .small_speaker import SECTION as SPEAKER_SECTION
from .small_speaker import small_speaker_encoder

CODEC_SECTION = {
    "num_filters": 4,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "codebook_size": 16,
    "codebook_dim": 8,
    "vector_quantization_hidden_dimension": 8,
    "num_quantizers": 16,
}


def write_small_base(folder: Path) -> Path:
    """Write the checkpoint into `folder`."""
    codec = CodecEncoder(EncoderConfig.from_document({"encoder_config": CODEC_SECTION}))
    weights = stable_weights({name: tuple(tensor.shape) for name, tensor in codec.state_dict().items()})
    tokenizer = folder / "speech_tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / "config.json").write_text(json.dumps({"encoder_config": CODEC_SECTION}))
    save_file({f"encoder.{name}": tensor for name, tensor in weights.items()}, tokenizer / "model.safetensors")
    document = {"tts_model_type": "base", "speaker_encoder_config": SPEAKER_SECTION}
    (folder / "config.json").write_text(json.dumps(document))
    speaker = small_speaker_encoder().state_dict()
    save_file({f"speaker_encoder.{name}": tensor for name, tensor in speaker.items()}, folder / "model.safetensors")
    return folder


def recording(seconds: float = 2.0, rate_hz: int = 16_000, hertz: float = 300, level: float = 0.3) -> bytes:
    """A WAV file of a tone with a slow tremolo."""
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    samples = level * np.sin(2 * np.pi * hertz * time_s) * (0.6 + 0.4 * np.sin(2 * np.pi * 2 * time_s))
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="WAV")
    return file.getvalue()
