"""Speaker vectors: reading them from files, and identifying the model that they belong to."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from voxgate.pipeline.cloning.speaker_vectors import MAX_VECTOR_FILE_BYTES, read_vector, speaker_space_id
from voxgate.pipeline.cloning.store import serialize_voice
from voxgate.pipeline.errors import BadVoice, CheckpointError

from .voices import in_context_voice

VECTOR = np.arange(8, dtype=np.float32) / 4


def write(path: Path, values: Any) -> Path:
    match path.suffix:
        case ".npy":
            np.save(path, values, allow_pickle=True)
        case ".json":
            path.write_text(json.dumps(np.asarray(values).tolist()))
        case ".safetensors":
            save_file({"anything": np.asarray(values)}, path)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".json", ".safetensors"])
@pytest.mark.parametrize("values", [VECTOR, VECTOR.astype(np.float64), VECTOR[None, :, None]])
def test_vector_is_read_from_each_format(tmp_path: Path, suffix: str, values: Any) -> None:
    vector = read_vector(write(tmp_path / f"v{suffix}", values))
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, VECTOR)


def test_vector_is_read_from_voice_file(tmp_path: Path) -> None:
    path = tmp_path / "bob.safetensors"
    path.write_bytes(serialize_voice(in_context_voice()))
    np.testing.assert_array_equal(read_vector(path), in_context_voice().voice.speaker_vector)


class Trap:
    """Fails the test when unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was run",)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("v.json", b"{", "no speaker vector"),
        ("v.json", b'{"a": 1}', "no speaker vector"),
        ("v.json", b"[[1, 2], [3, 4]]", "single row"),
        ("v.json", b"[]", "single row"),
        ("v.npy", b"", "no speaker vector"),
        ("v.npy", pickle.dumps(Trap()), "no speaker vector"),
        ("v.safetensors", b"no", "no speaker vector"),
        ("v.pt", b"no", r"got \.pt"),
        ("v", b"no", "got none"),
        ("v.json", bytes(MAX_VECTOR_FILE_BYTES + 1), "at most"),
    ],
)
def test_file_without_vector_is_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadVoice, match=words):
        read_vector(path)


def test_several_tensors_need_the_name_speaker_vector(tmp_path: Path) -> None:
    save_file({"a": VECTOR, "b": VECTOR}, tmp_path / "v.safetensors")
    with pytest.raises(BadVoice, match="speaker_vector"):
        read_vector(tmp_path / "v.safetensors")


LAYER = "speaker_encoder.fc.weight"


def weights(seed: int = 0) -> torch.Tensor:
    return torch.randn(24, 96, 1, generator=torch.Generator().manual_seed(seed))


def write_checkpoint(folder: Path, tensor: torch.Tensor) -> Path:
    folder.mkdir()
    save_torch_file({"a.first": torch.zeros(3), LAYER: tensor, "z.last": torch.ones(2)}, folder / "model.safetensors")
    return folder


def test_id_is_independent_of_precision(tmp_path: Path) -> None:
    spaces = {
        speaker_space_id(write_checkpoint(tmp_path / str(dtype), weights().to(dtype)))
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    assert len(spaces) == 1
    assert len(spaces.pop()) == 16
    assert speaker_space_id(write_checkpoint(tmp_path / "other", weights(1))) not in spaces


def test_layer_is_found_in_shards_by_index(tmp_path: Path) -> None:
    whole = speaker_space_id(write_checkpoint(tmp_path / "whole", weights()))
    shards = tmp_path / "shards"
    shards.mkdir()
    save_torch_file({"a.first": torch.zeros(3)}, shards / "one.safetensors")
    save_torch_file({LAYER: weights()}, shards / "two.safetensors")
    places = {"a.first": "one.safetensors", LAYER: "two.safetensors"}
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert speaker_space_id(shards) == whole


def test_checkpoint_without_speaker_encoder_has_empty_id(tmp_path: Path) -> None:
    save_torch_file({"talker.a": torch.zeros(3)}, tmp_path / "model.safetensors")
    assert speaker_space_id(tmp_path) == ""


@pytest.mark.parametrize("content", [None, b"", b"not safetensors at all", b"\xff" * 16])
def test_unreadable_weights_raise_checkpoint_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        speaker_space_id(tmp_path)
