"""The folder that vLLM is started on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from voxgate.pipeline.checkpoint import CheckpointError, TalkerCheckpoint
from voxgate.pipeline.talker.engine_folder import write_engine_folder
from voxgate.pipeline.talker.plugin import ARCHITECTURE


def test_weights_are_linked_not_copied(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, 16, 900, tmp_path)
    link = tmp_path / "model.safetensors"
    assert link.is_symlink()
    assert link.resolve() == (checkpoint.folder / "model.safetensors").resolve()


def test_nothing_but_configuration_and_weights_is_there(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, 16, 900, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_the_backbone_has_the_talkers_sizes(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, 16, 900, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [ARCHITECTURE]
    assert config["model_type"] == "qwen3"
    assert (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]) == (320, 896, 7)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (6, 2, 64)
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-6, 1e4)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e4}
    assert config["max_position_embeddings"] == 900


def test_the_vocabulary_is_the_slots_and_end_of_speech(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, 16, 900, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == 17


def test_what_vllm_would_read_besides_is_left_out(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "engine"
    source.mkdir()
    folder.mkdir()
    (source / "model.safetensors").symlink_to(checkpoint.folder / "model.safetensors")
    (source / "consolidated.safetensors").touch()
    write_engine_folder(replace(checkpoint, folder=source), 4, 100, folder)
    assert [path.name for path in folder.iterdir() if path.is_symlink()] == ["model.safetensors"]


def test_weights_of_other_sizes_are_refused_before_vllm_sees_them(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    wider = replace(checkpoint, text_vocab=checkpoint.text_vocab + 1)
    with pytest.raises(CheckpointError, match=r"talker\.model\.text_embedding\.weight \[2048, 256\] instead of \[2049"):
        write_engine_folder(wider, 16, 900, tmp_path)
