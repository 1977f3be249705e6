"""Checking the talker's weights in one file or several."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.checkpoint.weights import check_weights, tensor_shapes
from voxgate.pipeline.errors import CheckpointError

from ..talker.small_model import small_checkpoint


@pytest.fixture
def small(checkpoint: TalkerCheckpoint, tmp_path: Path) -> TalkerCheckpoint:
    return replace(small_checkpoint(checkpoint), folder=tmp_path)


def stored(checkpoint: TalkerCheckpoint) -> dict[str, Tensor]:
    return {f"talker.{name}": torch.zeros(shape) for name, shape in tensor_shapes(checkpoint).items()}


def test_demo_voice_has_exactly_the_expected_tensors(checkpoint: TalkerCheckpoint) -> None:
    tensors = load_file(checkpoint.folder / "model.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        f"talker.{name}": shape for name, shape in tensor_shapes(checkpoint).items()
    }


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_single_file_loads_with_and_without_metadata(small: TalkerCheckpoint, metadata: dict[str, str] | None) -> None:
    path = small.folder / "model.safetensors"
    save_file(stored(small), path, metadata=metadata)
    assert check_weights(small) == [path]


def test_indexed_shards_load(small: TalkerCheckpoint) -> None:
    tensors = stored(small) | {"speaker_encoder.fc.weight": torch.zeros(1)}
    names = sorted(tensors)
    half = names.index("talker.model.norm.weight")
    files = {"a.safetensors": names[:half], "b.safetensors": names[half:], "c.safetensors": []}
    files["c.safetensors"].append(files["a.safetensors"].pop(0))
    assert files["c.safetensors"] == ["speaker_encoder.fc.weight"]
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, small.folder / file)
    places = {name: file for file, part in files.items() for name in part}
    (small.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    # A file without tensors of the talker is not read.
    assert check_weights(small) == [small.folder / "a.safetensors", small.folder / "b.safetensors"]


def test_missing_shard_is_named(small: TalkerCheckpoint) -> None:
    places = dict.fromkeys(stored(small), "gone.safetensors")
    (small.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(CheckpointError, match=r"gone\.safetensors"):
        check_weights(small)


def test_missing_surplus_and_misshapen_tensors_are_named(small: TalkerCheckpoint) -> None:
    tensors = stored(small)
    del tensors["talker.model.norm.weight"]
    tensors["talker.model.layers.7.mlp.up_proj.weight"] = torch.zeros(2, 2)
    tensors["talker.codec_head.weight"] = torch.zeros(5, 24)
    save_file(tensors, small.folder / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        check_weights(small)
    assert "missing talker.model.norm.weight" in caught.value.message
    assert "surplus talker.model.layers.7.mlp.up_proj.weight" in caught.value.message
    assert "talker.codec_head.weight [5, 24] instead of [40, 24]" in caught.value.message


def test_quantised_weights_are_refused_by_name(small: TalkerCheckpoint) -> None:
    tensors = stored(small)
    tensors["talker.codec_head.weight"] = tensors["talker.codec_head.weight"].to(torch.float8_e4m3fn)
    save_file(tensors, small.folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"F32, F64: talker\.codec_head\.weight F8_E4M3"):
        check_weights(small)


def test_projection_is_expected_only_between_different_widths(small: TalkerCheckpoint) -> None:
    same = replace(small, talker=replace(small.talker, hidden=small.predictor.hidden))
    name = "code_predictor.small_to_mtp_projection.weight"
    assert name in tensor_shapes(small)
    assert name not in tensor_shapes(same)


@pytest.mark.parametrize("content", [None, b"", b"not safetensors"])
def test_absent_or_broken_weights_are_named(small: TalkerCheckpoint, content: bytes | None) -> None:
    if content is not None:
        (small.folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        check_weights(small)


def test_weights_of_another_model_are_named(small: TalkerCheckpoint) -> None:
    save_file({"model.layers.0.weight": torch.zeros(1)}, small.folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensors named talker\."):
        check_weights(small)
