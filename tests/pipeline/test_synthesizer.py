"""What a synthesizer decides before any engine runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from voxgate.pipeline.checkpoint import CheckpointError
from voxgate.pipeline.errors import EngineNotReady, UnknownLanguage, UnknownVoice, UnsupportedOption
from voxgate.pipeline.speech import EngineState, SamplingOptions, SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer, SynthesizerOptions


@pytest.fixture
def synthesizer(demo_folder: Path) -> QwenSynthesizer:
    return QwenSynthesizer(demo_folder, SynthesizerOptions(slots=2))


def test_the_voices_are_the_checkpoints_with_what_its_voice_file_tells(synthesizer: QwenSynthesizer) -> None:
    voice = synthesizer.voices[synthesizer.default_voice]
    assert list(synthesizer.voices) == ["slt"]
    assert voice.languages == ("auto", "english")
    assert not voice.instructions
    assert voice.description


def test_nothing_is_spoken_before_the_start(synthesizer: QwenSynthesizer) -> None:
    assert synthesizer.state is EngineState.STARTING
    assert synthesizer.free_slots == 0
    with pytest.raises(EngineNotReady):
        synthesizer.open(SpeechRequest(voice="slt"))


async def test_closing_before_the_start_is_allowed(synthesizer: QwenSynthesizer) -> None:
    await synthesizer.close()
    assert synthesizer.state is EngineState.DEAD


@pytest.mark.parametrize(
    ("request_", "error", "named"),
    [
        (SpeechRequest(voice="nobody"), UnknownVoice, "slt"),
        (SpeechRequest(voice="slt", language="klingon"), UnknownLanguage, "english"),
        (SpeechRequest(voice="slt", instructions="Whisper."), UnsupportedOption, "instructions"),
    ],
)
def test_what_the_voice_has_not_is_refused_by_name(
    synthesizer: QwenSynthesizer, request_: SpeechRequest, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        synthesizer._plan(request_.voice, request_)


def test_a_seed_and_options_are_taken_and_the_rest_is_the_voices_own(synthesizer: QwenSynthesizer) -> None:
    asked = SpeechRequest(voice="slt", seed=5, sampling=SamplingOptions(temperature=0.1, top_k=3))
    sampling = synthesizer._plan("slt", asked).sampling
    assert (sampling.seed, sampling.temperature, sampling.top_k) == (5, 0.1, 3)
    assert (sampling.predictor_temperature, sampling.repetition_penalty) == (0.6, 1.0)


def test_without_a_seed_each_utterance_gets_its_own(synthesizer: QwenSynthesizer) -> None:
    seeds = {synthesizer._plan("slt", SpeechRequest(voice="slt")).sampling.seed for _ in range(8)}
    assert len(seeds) == 8


def test_generation_runs_ahead_by_whole_frames(demo_folder: Path) -> None:
    synthesizer = QwenSynthesizer(demo_folder, SynthesizerOptions(ahead_ms=1000))
    assert synthesizer._plan("slt", SpeechRequest(voice="slt")).ahead_frames == 13


def test_a_model_of_another_kind_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    shutil.copytree(demo_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tts_model_type": "base"}))
    with pytest.raises(CheckpointError, match="base"):
        QwenSynthesizer(folder, SynthesizerOptions())
