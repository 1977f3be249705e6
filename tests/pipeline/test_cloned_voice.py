"""Parts of a cloned voice, and the checkpoints that it fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.cloned_voice import MAX_REFERENCE_FRAMES, ClonedVoice
from voxgate.pipeline.errors import BadVoice


def voice(width: int = 4, **changes: Any) -> ClonedVoice:
    return ClonedVoice(**{"name": "ada", "speaker_vector": np.ones(width, np.float32)} | changes)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"name": "  "}, "name"),
        ({"speaker_vector": np.ones((2, 2))}, "speaker_vector"),
        ({"speaker_vector": np.array([1.0, np.nan])}, "speaker_vector"),
        ({"reference_text": "Hello."}, "reference_text"),
        ({"reference_codes": np.zeros((3, 16), int)}, "reference_text"),
        ({"reference_text": " ", "reference_codes": np.zeros((3, 16), int)}, "reference_text"),
        ({"reference_text": "Hello.", "reference_codes": np.zeros((0, 16), int)}, "reference_codes"),
        ({"reference_text": "Hello.", "reference_codes": np.zeros((3, 16))}, "reference_codes"),
        ({"reference_text": "Hello.", "reference_codes": np.zeros(16, int)}, "reference_codes"),
    ],
)
def test_invalid_voice_part_is_named(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(BadVoice) as caught:
        voice(**changes)
    assert caught.value.param == param


def test_arrays_are_converted_to_one_type() -> None:
    made = voice(speaker_vector=np.ones(4), reference_text="Hello.", reference_codes=np.zeros((3, 16), np.int16))
    assert made.speaker_vector.dtype == np.float32
    assert made.reference_codes is not None
    assert made.reference_codes.dtype == np.int64
    assert made.in_context
    assert not voice().in_context


@pytest.fixture
def base(checkpoint: TalkerCheckpoint) -> TalkerCheckpoint:
    return replace(checkpoint, model_type="base")


def with_codes(checkpoint: TalkerCheckpoint, frames: int = 3, **changes: Any) -> ClonedVoice:
    codes = np.zeros((frames, checkpoint.groups), int)
    return voice(checkpoint.talker.hidden, **{"reference_text": "Hello.", "reference_codes": codes} | changes)


def test_voice_fits_model_of_its_sizes(base: TalkerCheckpoint) -> None:
    voice(base.talker.hidden).check(base)
    with_codes(base).check(base)


def test_vector_of_another_model_is_refused(base: TalkerCheckpoint) -> None:
    with pytest.raises(BadVoice, match="another model") as caught:
        voice(base.talker.hidden + 1).check(base)
    assert caught.value.param == "speaker_vector"


def test_codes_must_fit_the_codec(base: TalkerCheckpoint) -> None:
    wrong = (
        np.zeros((3, base.groups - 1), int),
        np.full((3, base.groups), base.codebook),
        np.full((3, base.groups), -1),
        np.zeros((MAX_REFERENCE_FRAMES + 1, base.groups), int),
    )
    for codes in wrong:
        with pytest.raises(BadVoice) as caught:
            with_codes(base, reference_codes=codes).check(base)
        assert caught.value.param == "reference_codes"


def test_custom_voice_model_accepts_vector_without_context(checkpoint: TalkerCheckpoint) -> None:
    voice(checkpoint.talker.hidden).check(checkpoint)
    with pytest.raises(BadVoice, match="only base models"):
        with_codes(checkpoint).check(checkpoint)


def test_voice_design_model_accepts_no_cloned_voice(base: TalkerCheckpoint) -> None:
    with pytest.raises(BadVoice, match="no cloned voice"):
        voice(base.talker.hidden).check(replace(base, model_type="voice_design"))
