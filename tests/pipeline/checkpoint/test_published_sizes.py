"""Expected names and shapes give the sizes of the published files to the byte (docs/qwen3_tts.md, section 12)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from voxgate.codecs.neural.config import EncoderConfig
from voxgate.codecs.neural.decoder_shapes import tensor_shapes as decoder_shapes
from voxgate.codecs.neural.encoder import CodecEncoder
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.checkpoint.weights import tensor_shapes
from voxgate.pipeline.cloning.speaker_encoder import SpeakerEncoder, SpeakerEncoderConfig

from ...codecs.neural.conftest import PUBLISHED as PUBLISHED_DECODER
from .published import CODEC_ENCODER, GENERATION, published_config

Shapes = dict[str, tuple[int, ...]]


def file_bytes(shapes: Shapes, dtype: str, metadata: dict[str, str] | None) -> int:
    """The size of a safetensors file: its header's length, the header padded to 8 bytes, the data."""
    width = {"BF16": 2, "F32": 4}[dtype]
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, shape in sorted(shapes.items()):
        begin, end = end, end + width * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    length = len(json.dumps(header, separators=(",", ":")))
    return 8 + -(-length // 8) * 8 + end


def main_shapes(folder: Path, model_type: str, model_size: str) -> Shapes:
    config = published_config(model_type, model_size)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    shapes = {f"talker.{name}": shape for name, shape in tensor_shapes(load_checkpoint(folder)).items()}
    if model_type == "base":
        with torch.device("meta"):
            encoder = SpeakerEncoder(SpeakerEncoderConfig.from_checkpoint(folder))
        shapes |= {f"speaker_encoder.{name}": tuple(part.shape) for name, part in encoder.state_dict().items()}
    return shapes


@pytest.mark.parametrize(
    ("model_type", "model_size", "tensors", "parameters", "size"),
    [
        ("custom_voice", "0b6", 402, 905_788_672, 1_811_626_576),
        ("base", "0b6", 478, 914_643_008, 1_829_344_272),
        ("custom_voice", "1b7", 404, 1_916_676_352, 3_833_402_552),
        ("voice_design", "1b7", 404, 1_916_676_352, 3_833_402_552),
        ("base", "1b7", 480, 1_928_677_440, 3_857_413_744),
    ],
)
def test_talker_file_has_published_size(
    tmp_path: Path, model_type: str, model_size: str, tensors: int, parameters: int, size: int
) -> None:
    shapes = main_shapes(tmp_path, model_type, model_size)
    assert len(shapes) == tensors
    assert sum(map(math.prod, shapes.values())) == parameters
    metadata = None if model_type == "base" else {"format": "pt"}
    assert file_bytes(shapes, "BF16", metadata) == size


def test_codec_file_has_published_size() -> None:
    shapes = {f"decoder.{name}": shape for name, shape in decoder_shapes(PUBLISHED_DECODER).items()}
    for stack in ("first", "rest"):
        # In the file, but not needed for decoding.
        shapes[f"decoder.quantizer.rvq_{stack}.input_proj.weight"] = (256, 512, 1)
    with torch.device("meta"):
        encoder = CodecEncoder(EncoderConfig(**CODEC_ENCODER))
    shapes |= {f"encoder.{name}": tuple(part.shape) for name, part in encoder.state_dict().items()}
    assert len(shapes) == 496
    assert sum(map(math.prod, shapes.values())) == 170_557_441
    assert file_bytes(shapes, "F32", None) == 682_293_092
