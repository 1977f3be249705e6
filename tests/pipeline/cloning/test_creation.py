"""Making voices: drafts, recordings, vectors and blends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from voxgate.pipeline.cloning.creation import (
    MAX_TEXT_CHARACTERS,
    VoiceDraft,
    blend,
    voice_from_recording,
    voice_from_vector,
)
from voxgate.pipeline.cloning.recording import RecordingLimits
from voxgate.pipeline.cloning.speaker_vectors import speaker_space_id
from voxgate.pipeline.cloning.store import StoredVoice
from voxgate.pipeline.errors import BadVoice, CheckpointError, SilentAudio

from .small_base import recording
from .voices import ORIGIN, stored_voice


def make(base: Path, **draft: Any) -> StoredVoice:
    return voice_from_recording(base, "small", VoiceDraft("Ada", **draft), recording(), RecordingLimits())


def test_voice_without_text_has_vector_alone(base: Path) -> None:
    stored = make(base, languages=("English ", ""), description="A tone.")
    assert stored.name == "ada"
    assert stored.voice.speaker_vector.shape == (24,)
    assert not stored.voice.in_context
    assert stored.voice.languages == ("english",)
    assert stored.origin.checkpoint == "small"
    assert stored.origin.space == speaker_space_id(base) != ""
    assert stored.origin.source == "recording"
    assert stored.origin.made.endswith("+00:00")


@pytest.mark.parametrize(("silence_ms", "frames"), [(500, 32), (0, 25), (60_000, 375)])
def test_voice_with_text_has_codes_of_recording_and_silence(base: Path, silence_ms: int, frames: int) -> None:
    stored = make(base, text=" Hello there. ", trailing_silence_ms=silence_ms)
    assert stored.voice.reference_text == "Hello there."
    assert stored.voice.reference_codes is not None
    assert stored.voice.reference_codes.shape == (frames, 16)
    np.testing.assert_array_equal(stored.voice.speaker_vector, make(base).voice.speaker_vector)


def test_vector_depends_on_recording(base: Path) -> None:
    other = voice_from_recording(base, "small", VoiceDraft("b"), recording(hertz=900), RecordingLimits())
    assert not np.allclose(other.voice.speaker_vector, make(base).voice.speaker_vector)


def test_draft_is_normalised() -> None:
    draft = VoiceDraft("Ada", "  Hello\n  there. ", ("English ", " ", "Brazilian Portuguese"), "A\tfriend.").validated()
    assert draft == VoiceDraft("ada", "Hello there.", ("english", "brazilian portuguese"), "A friend.")
    assert draft.validated() == draft
    assert (
        VoiceDraft("ada", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645").validated().text
    )  # a zero-width joiner, used in Persian


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"name": "../x"}, "name"),
        ({"text": "  "}, "text"),
        ({"text": "x" * (MAX_TEXT_CHARACTERS + 1)}, "text"),
        ({"description": "x" * (MAX_TEXT_CHARACTERS + 1)}, "description"),
        ({"languages": ("x" * (MAX_TEXT_CHARACTERS + 1),)}, "language"),
        ({"languages": ("x",) * 21}, "language"),
        ({"text": "Hello \x1b[31m"}, "text"),
        ({"description": "A\x00B"}, "description"),
    ],
)
def test_invalid_draft_is_refused_before_loading(changes: dict[str, Any], param: str) -> None:
    draft = replace(VoiceDraft("ada"), **changes)
    with pytest.raises(BadVoice) as caught:
        voice_from_recording(Path("nowhere"), "small", draft, b"", RecordingLimits())
    assert caught.value.param == param


def test_unusable_recording_is_refused_before_loading() -> None:
    with pytest.raises(SilentAudio):
        voice_from_recording(Path("x"), "x", VoiceDraft("ada"), recording(level=0), RecordingLimits())


def test_codec_without_encoder_raises_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / "speech_tokenizer").mkdir()
    (tmp_path / "speech_tokenizer" / "config.json").write_text(json.dumps({"encoder_config": None}))
    with pytest.raises(CheckpointError, match="no encoder_config"):
        make(tmp_path, text="Hello.")


def test_given_vector_must_have_model_width(base: Path) -> None:
    vector = np.arange(24, dtype=np.float32)
    stored = voice_from_vector(base, "small", VoiceDraft("ada"), vector, 24)
    np.testing.assert_array_equal(stored.voice.speaker_vector, vector)
    assert stored.origin.source == "vector"
    assert stored.origin.space == speaker_space_id(base)
    with pytest.raises(BadVoice, match="must have 32 numbers for small, got 24"):
        voice_from_vector(base, "small", VoiceDraft("ada"), vector, 32)


def voice(name: str, *vector: float, **changes: Any) -> StoredVoice:
    return stored_voice(name, speaker_vector=np.array(vector, np.float32), **changes)


def test_blend_interpolates_vectors_and_lengths() -> None:
    one, other = voice("one", 2, 0, languages=("german", "english")), voice("other", 0, 4, languages=("english",))
    draft = VoiceDraft("both")
    np.testing.assert_allclose(blend(draft, one, other, 0).voice.speaker_vector, [2, 0])
    np.testing.assert_allclose(blend(draft, one, other, 1).voice.speaker_vector, [0, 4])
    mixed = blend(draft, one, other, 0.25)
    assert np.linalg.norm(mixed.voice.speaker_vector) == pytest.approx(2.5)
    assert mixed.voice.speaker_vector[0] == pytest.approx(1.5 * mixed.voice.speaker_vector[1])
    assert mixed.voice.languages == ("english",)
    assert mixed.origin.source == "blend of one and other at 0.25"
    assert (mixed.origin.checkpoint, mixed.origin.space) == ("small", "here")


@pytest.mark.parametrize(
    ("other", "weight", "words"),
    [
        (voice("b", 1, 1), -0.1, "between 0 and 1"),
        (voice("b", 1, 1), 1.1, "between 0 and 1"),
        (voice("b", 1, 1), float("nan"), "between 0 and 1"),
        (voice("b", 1, 1, 1), 0.5, "different models"),
        (voice("b", 1, 1, origin=replace(ORIGIN, space="elsewhere")), 0.5, "different models"),
        (voice("b", -1, 0), 0.5, "cancel"),
    ],
)
def test_impossible_blend_is_refused(other: StoredVoice, weight: float, words: str) -> None:
    with pytest.raises(BadVoice, match=words):
        blend(VoiceDraft("both"), voice("a", 1, 0), other, weight)
