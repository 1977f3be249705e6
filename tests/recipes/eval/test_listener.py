"""The recogniser itself; where `scripts/eval-voice` has not brought it, there is nothing to test."""

from __future__ import annotations

import numpy as np
import pytest
from eval.listener import SpeechRecogniser

pytest.importorskip("pocketsphinx")


@pytest.fixture(scope="module")
def listener() -> SpeechRecogniser:
    return SpeechRecogniser()


def test_it_knows_its_dictionary(listener: SpeechRecogniser) -> None:
    assert listener.knows("The weather, tomorrow!")
    assert not listener.knows("the wether sharpeneth")


def test_what_was_heard_before_does_not_matter(listener: SpeechRecogniser) -> None:
    noise = (np.random.default_rng(0).normal(0, 2000, 24_000)).astype(np.int16)
    candidates = ("the first sentence.", "another one.")
    first = listener.listen(noise, candidates)
    listener.listen(noise // 50)
    assert listener.listen(noise, candidates) == first
