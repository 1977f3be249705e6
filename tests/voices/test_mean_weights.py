"""The mean of several runs' weights, parameter by parameter, from the files that the runs left."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from voxgate.voices.demo.train import mean_weights


def test_parts_of_each_run_are_read_and_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run, value in (("a", 1.0), ("b", 2.0), ("c", 6.0)):
        (tmp_path / run).mkdir()
        for part, name in enumerate(("head", "body")):
            weights = {name: torch.full((2, 3), value + part).half()}
            save_file(weights, tmp_path / run / f"talker.{part}.safetensors")
    folders = [str(tmp_path / run) for run in "abc"]
    monkeypatch.setattr(sys, "argv", ["mean_weights", str(tmp_path / "out"), *folders])

    mean_weights.main()

    made = load_file(tmp_path / "out" / "talker.safetensors")
    assert {name: value.dtype for name, value in made.items()} == {"head": torch.float16, "body": torch.float16}
    assert made["head"].tolist() == [[3.0] * 3] * 2
    assert made["body"].tolist() == [[4.0] * 3] * 2


def test_different_models_have_no_mean() -> None:
    with pytest.raises(ValueError, match="different models"):
        mean_weights.mean([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}])
