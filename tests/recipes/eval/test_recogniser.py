"""The recogniser; skipped unless `scripts/eval-voice` has installed it."""

from __future__ import annotations

import numpy as np
import pytest
from eval.recogniser import SpeechRecogniser

pytest.importorskip("pocketsphinx")


@pytest.fixture(scope="module")
def recogniser() -> SpeechRecogniser:
    return SpeechRecogniser()


def test_words_of_dictionary_are_known(recogniser: SpeechRecogniser) -> None:
    assert recogniser.knows("The weather, tomorrow!")
    assert not recogniser.knows("the wether sharpeneth")


def test_result_does_not_depend_on_earlier_audio(recogniser: SpeechRecogniser) -> None:
    noise = (np.random.default_rng(0).normal(0, 2000, 24_000)).astype(np.int16)
    candidates = ("the first sentence.", "another one.")
    first = recogniser.recognise(noise, candidates)
    recogniser.recognise(noise // 50)
    assert recogniser.recognise(noise, candidates) == first
