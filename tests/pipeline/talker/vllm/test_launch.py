"""What vLLM is started with: modules, the folder that describes the talker, file descriptors."""

from __future__ import annotations

import json
import logging
import re
import resource
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.errors import CheckpointError, EngineError
from voxgate.pipeline.ipc.slot_tables import TableShape
from voxgate.pipeline.talker.vllm.config import EngineConfig, EngineOptions, GpuOptions
from voxgate.pipeline.talker.vllm.launch import (
    DESCRIPTORS_NEEDED,
    check_descriptor_limit,
    check_host_memory,
    host_memory_bytes,
    log_errors_of_vllm,
    preload_modules,
    write_engine_folder,
)
from voxgate.pipeline.talker.vllm.plugin import ARCHITECTURE


def config_of(checkpoint: TalkerCheckpoint) -> EngineConfig:
    """Of 16 slots with up to 900 positions."""
    shape = TableShape(16, 99, 50, 800, checkpoint.groups, checkpoint.talker.hidden)
    return EngineConfig(str(checkpoint.folder), EngineOptions(slots=16), shape, "", (), "", 1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_preloaded_modules_exist(device: str) -> None:
    """The fork server ignores a module that does not exist, and every start becomes slow."""
    missing = [name for name in preload_modules(device) if find_spec(name.partition(":")[0]) is None]
    assert not missing


def test_errors_of_vllm_are_records_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("vllm").addHandler(logging.StreamHandler())
    log_errors_of_vllm()
    monkeypatch.setattr(logging, "logProcesses", False)  # as the gateway's log
    logging.getLogger("vllm.v1.engine").error("engine died")
    assert [record.getMessage() for record in caplog.records] == ["engine died"]
    assert capsys.readouterr().err == ""


def test_weights_are_linked_not_copied(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, config_of(checkpoint), tmp_path)
    link = tmp_path / "model.safetensors"
    assert link.is_symlink()
    assert link.resolve() == (checkpoint.folder / "model.safetensors").resolve()


def test_folder_contains_configuration_and_weights_only(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, config_of(checkpoint), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_configuration_has_talker_sizes(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, config_of(checkpoint), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [ARCHITECTURE]
    assert config["model_type"] == "qwen3"
    assert (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]) == (320, 896, 7)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (6, 2, 64)
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-6, 1e4)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e4}
    assert config["max_position_embeddings"] == 900


def test_vocabulary_is_slots_and_end_of_speech(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    write_engine_folder(checkpoint, config_of(checkpoint), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == 17


def test_other_weight_files_are_left_out(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "engine"
    source.mkdir()
    folder.mkdir()
    (source / "model.safetensors").symlink_to(checkpoint.folder / "model.safetensors")
    (source / "consolidated.safetensors").touch()
    write_engine_folder(replace(checkpoint, folder=source), config_of(checkpoint), folder)
    assert [path.name for path in folder.iterdir() if path.is_symlink()] == ["model.safetensors"]


def test_weights_of_other_sizes_are_refused(checkpoint: TalkerCheckpoint, tmp_path: Path) -> None:
    wider = replace(checkpoint, text_vocab=checkpoint.text_vocab + 1)
    with pytest.raises(CheckpointError, match=r"talker\.model\.text_embedding\.weight \[2048, 256\] instead of \[2049"):
        write_engine_folder(wider, config_of(checkpoint), tmp_path)


def open_files() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]


@pytest.fixture
def _few_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(open_files())
    free = [number for number in range(len(taken) + DESCRIPTORS_NEEDED) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[DESCRIPTORS_NEEDED // 2], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_descriptor_check_leaves_nothing_open() -> None:
    before = set(open_files())
    check_descriptor_limit()
    # Fewer may be: what others have left open goes when it is collected.
    assert set(open_files()) <= before


@pytest.mark.usefixtures("_few_left")
def test_too_few_descriptors_raise_engine_error() -> None:
    before = set(open_files())
    with pytest.raises(EngineError, match="too many files are open"):
        check_descriptor_limit()
    assert set(open_files()) <= before


def with_cache(checkpoint: TalkerCheckpoint, cache: int) -> EngineConfig:
    config = config_of(checkpoint)
    return replace(config, options=replace(config.options, kv_cache_bytes=cache))


def test_memory_that_suffices_is_accepted(checkpoint: TalkerCheckpoint) -> None:
    check_host_memory(checkpoint, with_cache(checkpoint, 100_000_000), 8 * 10**9)


def test_missing_memory_of_the_machine_is_told_in_one_sentence(checkpoint: TalkerCheckpoint) -> None:
    with pytest.raises(EngineError) as caught:
        check_host_memory(checkpoint, with_cache(checkpoint, 9 * 10**9), 8 * 10**9)
    assert re.fullmatch(
        r"memory is 1\.\d GB short: the talker needs 0\.\d GB for its weights and 9\.0 GB for its cache, "
        r"and 8\.0 GB are free; set fewer --slots, or free memory that other programs hold",
        caught.value.message,
    )


def test_cache_without_room_for_one_utterance_is_refused(checkpoint: TalkerCheckpoint) -> None:
    with pytest.raises(EngineError, match=r"a cache of 1 MB is too small: one utterance can take 6 MB, set a larger"):
        check_host_memory(checkpoint, with_cache(checkpoint, 1 << 20), 8 * 10**9)


def test_limit_of_the_container_counts(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    free = host_memory_bytes(limit)
    limit.write_text("max\n")
    assert host_memory_bytes(limit) > free / 2
    limit.write_text("1000000\n")
    assert host_memory_bytes(limit) == 1_000_000


@pytest.mark.parametrize(
    ("slots", "voxgate_kernels", "positions"),
    [(16, True, 128), (300, True, 512), (1120, True, 1120), (16, False, 2048)],
)
def test_steps_with_prompts_stay_within_the_largest_graph_that_holds_them(
    checkpoint: TalkerCheckpoint, slots: int, voxgate_kernels: bool, positions: int
) -> None:
    options = EngineOptions(slots=slots, device="cuda", gpu=GpuOptions(voxgate_kernels=voxgate_kernels))
    config = config_of(checkpoint)
    config = replace(config, options=options, shape=replace(config.shape, slots=slots))
    assert config.step_positions == positions
