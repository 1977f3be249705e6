"""A synthesizer before its engine is started: voices, options and refusals."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import save_file
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.decoder_shapes import tensor_shapes as decoder_shapes
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.cuda.device_memory import DeviceMemory
from voxgate.pipeline.errors import (
    CheckpointError,
    EngineError,
    EngineNotReady,
    UnknownLanguage,
    UnknownVoice,
    UnsupportedOption,
)
from voxgate.pipeline.interface import EngineState, SamplingOptions, SpeechRequest
from voxgate.pipeline.synthesizer import CPU_SLOTS, QwenSynthesizer
from voxgate.pipeline.talker.vllm import gpu_memory
from voxgate.pipeline.talker.vllm.gpu_memory import GB, MAX_SLOTS
from voxgate.pipeline.voice_model import SynthesizerOptions


@pytest.fixture
def synthesizer(demo_folder: Path) -> QwenSynthesizer:
    return QwenSynthesizer(demo_folder, SynthesizerOptions(slots=2))


def test_voices_combine_checkpoint_and_voice_file(synthesizer: QwenSynthesizer) -> None:
    assert set(synthesizer.voices) == {"heart", "michael", "emma", "george"}
    for voice in synthesizer.voices.values():
        assert voice.languages == ("auto", "english")
        assert not voice.instructions
        assert voice.display
        assert voice.description


def test_opening_before_start_raises_engine_not_ready(synthesizer: QwenSynthesizer) -> None:
    assert synthesizer.state is EngineState.STARTING
    assert synthesizer.free_slots == 0
    with pytest.raises(EngineNotReady):
        synthesizer.open(SpeechRequest(voice="heart"))


def test_engine_expects_an_utterance_once_it_runs(synthesizer: QwenSynthesizer) -> None:
    synthesizer.expect_utterance()
    expected: list[None] = []
    talker = SimpleNamespace(expect_utterance=lambda: expected.append(None))
    synthesizer._processes = SimpleNamespace(talker=talker)  # type: ignore[assignment]  # a fake
    synthesizer.expect_utterance()
    assert len(expected) == 1


async def test_closing_before_start_is_allowed(synthesizer: QwenSynthesizer) -> None:
    await synthesizer.close()
    assert synthesizer.state is EngineState.DEAD


class ProcessesStub:
    def __init__(self, *, alive: bool) -> None:
        self.talker = SimpleNamespace(alive=alive)

    async def close(self) -> None: ...


async def test_only_an_engine_behind_a_lost_one_lacks_the_kernel_that_can_hang(synthesizer: QwenSynthesizer) -> None:
    for alive, expected in ((True, True), (False, False), (True, False)):
        synthesizer._processes = ProcessesStub(alive=alive)  # type: ignore[assignment]  # all that closing needs
        await synthesizer.close()
        assert synthesizer._build_talker(2).options.gpu.persistent_predictor is expected


@pytest.mark.parametrize(
    ("request_", "error", "named"),
    [
        (SpeechRequest(voice="nobody"), UnknownVoice, "nobody"),
        (SpeechRequest(voice="heart", language="klingon"), UnknownLanguage, "english"),
        (SpeechRequest(voice="heart", instructions="Whisper."), UnsupportedOption, "instructions"),
    ],
)
def test_unsupported_request_is_refused_by_name(
    synthesizer: QwenSynthesizer, request_: SpeechRequest, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        synthesizer._plan(request_)


def test_request_options_override_defaults(synthesizer: QwenSynthesizer) -> None:
    asked = SpeechRequest(voice="heart", seed=5, sampling=SamplingOptions(temperature=0.1, top_k=3))
    sampling = synthesizer._plan(asked).sampling
    assert (sampling.seed, sampling.temperature, sampling.top_k) == (5, 0.1, 3)
    usual = synthesizer._plan(SpeechRequest(voice="heart")).sampling
    assert usual.temperature != 0.1
    assert sampling.predictor_temperature == usual.predictor_temperature
    assert sampling.repetition_penalty == usual.repetition_penalty


def test_utterances_without_seed_get_different_seeds(synthesizer: QwenSynthesizer) -> None:
    seeds = {synthesizer._plan(SpeechRequest(voice="heart")).sampling.seed for _ in range(8)}
    assert len(seeds) == 8


def test_only_paced_speech_on_a_gpu_waits_for_the_pcm_of_its_first_frame(
    demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "query_device_memory", lambda: DeviceMemory("GPU", 80 * GB, 80 * GB))
    for device, paced, frames in (("cuda", True, 1), ("cuda", False, None), ("cpu", True, None)):
        synthesizer = QwenSynthesizer(demo_folder, SynthesizerOptions(slots=2, device=device))
        assert synthesizer._plan(SpeechRequest(voice="heart", paced=paced)).frames_before_first_pcm == frames


def test_lookahead_is_whole_frames(demo_folder: Path) -> None:
    synthesizer = QwenSynthesizer(demo_folder, SynthesizerOptions(lookahead_ms=1000))
    assert synthesizer._plan(SpeechRequest(voice="heart")).lookahead_frames == 13


def kind(demo_folder: Path, folder: Path, model_type: str, **talker: object) -> Path:
    """Returns the demo voice's folder with another model type."""
    shutil.copytree(demo_folder, folder, copy_function=os.symlink)
    config = json.loads((folder / "config.json").read_text()) | {"tts_model_type": model_type}
    config["talker_config"] |= talker
    rewrite(folder / "config.json", config)
    return folder


def rewrite(path: Path, values: dict[str, object]) -> None:
    """Replaces a link to the demo voice's file by a file of its own."""
    path.unlink()
    path.write_text(json.dumps(values))


def test_unknown_model_type_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "other", "tts_from_smell")
    with pytest.raises(CheckpointError, match="must be one of custom_voice, voice_design, base, got tts_from_smell"):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_custom_voice_model_must_have_speakers(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "nameless", "custom_voice", spk_id={})
    with pytest.raises(CheckpointError, match="names no speakers"):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_base_model_offers_added_voices(demo_folder: Path, tmp_path: Path) -> None:
    base = QwenSynthesizer(kind(demo_folder, tmp_path / "base", "base", spk_id={}), SynthesizerOptions())
    assert base.default_voice == ""
    base.add_voice(ClonedVoice("Ada", np.ones(320, np.float32)))
    assert list(base.voices) == ["ada"]
    assert base.default_voice == "ada"
    assert base._plan(SpeechRequest("ADA")).prompt.speaker_vector is not None
    base.remove_voice("ada")
    assert not base.voices


def test_generation_length_is_bounded(demo_folder: Path, tmp_path: Path, synthesizer: QwenSynthesizer) -> None:
    generation = json.loads((demo_folder / "generation_config.json").read_text())
    assert synthesizer._build_talker(1).shape.frames == generation["max_new_tokens"]
    folder = kind(demo_folder, tmp_path / "long", "custom_voice")
    generation["max_new_tokens"] = 8192
    rewrite(folder / "generation_config.json", generation)
    shape = QwenSynthesizer(folder, SynthesizerOptions())._build_talker(1).shape
    assert (shape.text, shape.frames) == (512, 2048)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors", "neither model.safetensors nor"),
        ("tokenizer.json", "vocab.json"),
        ("generation_config.json", "generation_config.json"),
        ("speech_tokenizer/config.json", "no codec configuration"),
        ("speech_tokenizer/model.safetensors", "neither model.safetensors nor"),
    ],
)
def test_missing_file_is_named(demo_folder: Path, tmp_path: Path, name: str, message: str) -> None:
    folder = kind(demo_folder, tmp_path / "lacking", "custom_voice")
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=message):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_invalid_voice_file_is_named(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "mistaken", "custom_voice")
    for content in ("[text", "[text]\nclosing_marc = '.'"):
        (folder / "voice.toml").unlink()
        (folder / "voice.toml").write_text(content)
        with pytest.raises(CheckpointError, match="mistaken"):
            QwenSynthesizer(folder, SynthesizerOptions())


def test_head_that_the_attention_of_a_cpu_refuses_is_named(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "heads", "custom_voice")
    config = json.loads((folder / "config.json").read_text())
    config["talker_config"]["head_dim"] = 48
    rewrite(folder / "config.json", config)
    with pytest.raises(CheckpointError, match=r"talker_config\.head_dim must be one of 32, .* on a CPU, got 48"):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_codec_of_25_hz_is_named(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "slow", "custom_voice")
    rewrite(folder / "speech_tokenizer" / "config.json", {"model_type": "qwen3_tts_tokenizer_25hz"})
    with pytest.raises(CheckpointError, match="model_type must be 'qwen3_tts_tokenizer_12hz', got 'qwen3_tts_token"):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_codec_must_match_the_talker(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "other", "custom_voice")
    path = folder / "speech_tokenizer" / "config.json"
    config = json.loads(path.read_text())
    config["decoder_config"]["codebook_size"] = 500
    rewrite(path, config)
    with pytest.raises(CheckpointError, match=r"\[512, 96\] instead of \[500, 96\]"):
        QwenSynthesizer(folder, SynthesizerOptions())
    config["decoder_config"]["codebook_size"] = 512
    rewrite(path, config)
    shapes = dict(decoder_shapes(DecoderConfig.from_checkpoint(path.parent)))
    fewer = {name: torch.zeros(shape) for name, shape in shapes.items() if ".rvq_rest.vq.layers.14." not in name}
    (path.parent / "model.safetensors").unlink()
    save_file({f"decoder.{name}": tensor for name, tensor in fewer.items()}, path.parent / "model.safetensors")
    config["decoder_config"]["num_quantizers"] = 15
    rewrite(path, config)
    with pytest.raises(CheckpointError, match="must decode the talker's 16 codebooks of 512 codes, got 15 of 512"):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_tokenizer_with_too_many_ids_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    folder = kind(demo_folder, tmp_path / "wide", "custom_voice")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zebra"] = 10**6
    rewrite(folder / "tokenizer.json", tokenizer)
    with pytest.raises(CheckpointError, match="ids, got 1000001"):
        QwenSynthesizer(folder, SynthesizerOptions())


def test_default_slots_follow_memory(demo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slots_with(memory_bytes: int) -> int:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=memory_bytes))
        return QwenSynthesizer(demo_folder, SynthesizerOptions()).slots

    assert slots_with(64 << 30) == CPU_SLOTS
    assert 1 < slots_with(300 << 20) < CPU_SLOTS
    assert slots_with(1 << 20) == 1


def test_default_slots_follow_free_gpu_memory(demo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slots_with(free_gb: float) -> int:
        memory = DeviceMemory("GPU", int(free_gb * GB), 80 * GB)
        monkeypatch.setattr(gpu_memory, "query_device_memory", lambda: memory)
        return QwenSynthesizer(demo_folder, SynthesizerOptions(device="cuda")).slots

    assert slots_with(79) == MAX_SLOTS
    assert 1 < slots_with(4) < MAX_SLOTS
    with pytest.raises(EngineError, match=r"GPU memory is .* GB short"):
        slots_with(1)
