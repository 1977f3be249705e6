"""Source speech through the codec alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from eval.codec import RoundTrip
from eval.sources import Sources
from safetensors.torch import save_file
from train.codec.mel_tokenizer import MelTokenizer

DEMO = Path(__file__).parents[3] / "voices" / "demo"


def test_round_trip_is_deterministic_and_in_whole_frames(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_file(MelTokenizer().frozen_state(), tmp_path / "codes.safetensors")
    trip = RoundTrip(tmp_path / "codes.safetensors", DEMO, Sources(tmp_path))
    noise = np.random.default_rng(0).normal(0, 0.1, 3 * 1920 - 5).astype(np.float32)
    once = trip.through(noise)
    assert len(once) == 3 * 1920
    assert np.array_equal(once, trip.through(noise))
    assert not np.allclose(once, trip.through(noise[::-1].copy()))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    state = MelTokenizer().frozen_state()
    save_file({name: value for name, value in state.items() if "in_first" not in name}, tmp_path / "codes.safetensors")
    with pytest.raises(ValueError, match="in_first"):
        RoundTrip(tmp_path / "codes.safetensors", DEMO, Sources(tmp_path))
