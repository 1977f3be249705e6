from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.decoder_shapes import tensor_shapes
from voxgate.codecs.neural.weights import load_tensors, random_tensors

from .conftest import PUBLISHED, SMALL


def stored() -> dict[str, torch.Tensor]:
    tensors = {f"decoder.{name}": tensor.float() for name, tensor in random_tensors(SMALL).items()}
    tensors["decoder.quantizer.rvq_first.input_proj.weight"] = torch.zeros(8, 16, 1)
    tensors["encoder.anything.weight"] = torch.zeros(3)
    return tensors


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_single_file_loads_with_and_without_metadata(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(stored(), tmp_path / "model.safetensors", metadata=metadata)
    tensors = load_tensors(tmp_path, SMALL)
    assert tensors.keys() == tensor_shapes(SMALL).keys()
    name = "pre_conv.conv.weight"
    assert torch.equal(tensors[name], stored()[f"decoder.{name}"])


def test_indexed_shards_load(tmp_path: Path) -> None:
    whole = stored()
    names = sorted(whole)
    places = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: whole[name] for name in names if places[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert load_tensors(tmp_path, SMALL).keys() == tensor_shapes(SMALL).keys()


def test_missing_surplus_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    tensors = stored()
    del tensors["decoder.pre_conv.conv.bias"]
    tensors["decoder.upsample.9.gamma"] = torch.zeros(2)
    tensors["decoder.decoder.6.conv.bias"] = torch.zeros(5)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CodecFormatError) as raised:
        load_tensors(tmp_path, SMALL)
    message = str(raised.value)
    assert "missing decoder.pre_conv.conv.bias" in message
    assert "surplus decoder.upsample.9.gamma" in message
    assert "decoder.decoder.6.conv.bias [5] instead of [1]" in message


def test_quantised_weights_are_refused_by_name(tmp_path: Path) -> None:
    tensors = stored()
    tensors["decoder.pre_conv.conv.bias"] = tensors["decoder.pre_conv.conv.bias"].to(torch.int8)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CodecFormatError, match=r"F32, F64: decoder\.pre_conv\.conv\.bias I8"):
        load_tensors(tmp_path, SMALL)


@pytest.mark.parametrize("content", [None, b"not safetensors"])
def test_absent_or_broken_weights_are_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CodecFormatError, match=r"model\.safetensors"):
        load_tensors(tmp_path, SMALL)


@pytest.mark.parametrize("index", ["[]", "{}", "{", '{"weight_map": {"decoder.x": "gone.safetensors"}}'])
def test_broken_index_raises_codec_format_error(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CodecFormatError):
        load_tensors(tmp_path, SMALL)


def test_published_sizes() -> None:
    """Shapes and parameter counts of the published decoder (docs/qwen3_tts.md, sections 8.3 and 11.3)."""
    shapes = tensor_shapes(PUBLISHED)
    assert shapes["decoder.4.block.1.conv.weight"] == (192, 96, 6)
    assert shapes["pre_transformer.layers.7.self_attn.o_proj.weight"] == (512, 1024)
    assert shapes["quantizer.rvq_rest.vq.layers.14._codebook.embedding_sum"] == (2048, 256)
    count = sum(torch.Size(shape).numel() for shape in shapes.values())
    is_encoder_only_tensor = 2 * 256 * 512
    assert round((count + is_encoder_only_tensor) / 1e6, 1) == 114.3
    assert PUBLISHED.exact_left_context == 580
