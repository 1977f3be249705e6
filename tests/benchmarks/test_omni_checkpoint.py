from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from voxgate.benchmarks import omni_checkpoint, random_checkpoint
from voxgate.benchmarks.omni_checkpoint import missing_projections, write_omni_checkpoint
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint


def test_missing_projections_are_added() -> None:
    quantizers = [f"decoder.quantizer.{name}" for name in ("rvq_first", "rvq_rest")]
    made = missing_projections({f"{name}.output_proj.weight": torch.zeros(512, 256, 1) for name in quantizers})
    assert {tuple(weight.shape) for weight in made.values()} == {(256, 512, 1)}
    assert sorted(made) == [f"{name}.input_proj.weight" for name in quantizers]


def test_checkpoint_is_readable_by_both_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The full weights take gigabytes.
    head = "talker.codec_head.weight"
    monkeypatch.setattr(random_checkpoint, "talker_shapes", lambda _: iter([(head, (3072, 2048))]))
    small = {"decoder_dim": 96, "latent_dim": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    monkeypatch.setattr(random_checkpoint, "CODEC", random_checkpoint.CODEC | small)
    monkeypatch.setattr(omni_checkpoint, "_encoder", lambda: {"encoder.layer": torch.zeros(1)})
    write_omni_checkpoint(tmp_path / "both", "1.7B")
    assert load_checkpoint(tmp_path / "both").talker.hidden == 2048
    config = json.loads((tmp_path / "both/config.json").read_text("utf-8"))
    assert sum(config["talker_config"]["rope_scaling"]["mrope_section"]) == config["talker_config"]["head_dim"] // 2
    for name in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"):
        assert (tmp_path / "both" / name).is_file()
    speech = tmp_path / "both/speech_tokenizer"
    assert json.loads((speech / "config.json").read_text("utf-8"))["encode_downsample_rate"] == 1920
    with safe_open(speech / "model.safetensors", "pt") as stored:
        names = set(stored.keys())
    assert "encoder.layer" in names
    assert "decoder.quantizer.rvq_rest.input_proj.weight" in names
    weight = load_file(tmp_path / "both/model.safetensors")[head]
    assert weight.shape == (3072, 2048)
    assert str(weight.dtype) == f"torch.{config['torch_dtype']}", (
        "vLLM-Omni computes in the type that config.json names"
    )
