"""Identifying a model by its speaker encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from voxgate.pipeline.cloning.speaker_vectors import speaker_space_id
from voxgate.pipeline.errors import CheckpointError

LAYER = "speaker_encoder.fc.weight"


def weights(seed: int = 0) -> torch.Tensor:
    return torch.randn(24, 96, 1, generator=torch.Generator().manual_seed(seed))


def store(folder: Path, tensor: torch.Tensor) -> Path:
    folder.mkdir()
    save_file({"a.first": torch.zeros(3), LAYER: tensor, "z.last": torch.ones(2)}, folder / "model.safetensors")
    return folder


def test_id_is_independent_of_precision(tmp_path: Path) -> None:
    spaces = {
        speaker_space_id(store(tmp_path / str(dtype), weights().to(dtype)))
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    assert len(spaces) == 1
    assert len(spaces.pop()) == 16
    assert speaker_space_id(store(tmp_path / "other", weights(1))) not in spaces


def test_layer_is_found_in_shards_by_index(tmp_path: Path) -> None:
    whole = speaker_space_id(store(tmp_path / "whole", weights()))
    shards = tmp_path / "shards"
    shards.mkdir()
    save_file({"a.first": torch.zeros(3)}, shards / "one.safetensors")
    save_file({LAYER: weights()}, shards / "two.safetensors")
    places = {"a.first": "one.safetensors", LAYER: "two.safetensors"}
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert speaker_space_id(shards) == whole


def test_checkpoint_without_speaker_encoder_has_empty_id(tmp_path: Path) -> None:
    save_file({"talker.a": torch.zeros(3)}, tmp_path / "model.safetensors")
    assert speaker_space_id(tmp_path) == ""


@pytest.mark.parametrize("content", [None, b"", b"not safetensors at all", b"\xff" * 16])
def test_unreadable_weights_raise_checkpoint_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        speaker_space_id(tmp_path)
