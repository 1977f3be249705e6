"""Recordings of the reference implementation, and the same small models for this project, written from its own shapes.

Each test runs on what was recorded with the project, and, marked `reference`, on what scripts/test-reference has just
made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch
from family_cases import REFERENCE_TEXT, ReferenceCase
from safetensors.torch import load_file, save_file
from small_family import VARIANTS, Shapes, Variant, write_checkpoint
from torch import Tensor
from voxgate.codecs.neural.config import DecoderConfig, EncoderConfig
from voxgate.codecs.neural.decoder_shapes import tensor_shapes as decoder_shapes
from voxgate.codecs.neural.encoder import CodecEncoder
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.checkpoint.voice_config import TextRules, VoiceConfig
from voxgate.pipeline.checkpoint.weights import tensor_shapes as talker_shapes
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.cloning.speaker_encoder import SpeakerEncoder, SpeakerEncoderConfig
from voxgate.pipeline.interface import SpeechRequest, TextLayout
from voxgate.pipeline.talker.prompt import Prompt
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText
from voxgate.pipeline.voices import DESIGNED, ModelVoices

ReferenceRecording = Mapping[str, np.ndarray]

FRESH = "VOXGATE_TEST_REFERENCE_RECORDINGS"
"""Environment variable with the folder to which scripts/test-reference recorded."""


@pytest.fixture(scope="session", params=["recorded", pytest.param("fresh", marks=pytest.mark.reference)])
def recorded(request: pytest.FixtureRequest) -> Callable[[str], ReferenceRecording]:
    """The recording of the reference for a subject."""
    if request.param == "recorded":
        folder = Path(__file__).parent / "recorded"
    elif FRESH in os.environ:
        folder = Path(os.environ[FRESH])
    else:
        pytest.skip("scripts/test-reference runs this")
    return lambda subject: np.load(folder / f"{subject}.npz")


@dataclass(frozen=True)
class LocalModel:
    """A small model as this project loads it."""

    variant: Variant
    folder: Path

    @cached_property
    def checkpoint(self) -> TalkerCheckpoint:
        return load_checkpoint(self.folder)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        return load_tokenizer(self.folder)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        return load_file(self.folder / "model.safetensors")

    def prompt(self, case: ReferenceCase) -> Prompt:
        """The prompt of a case, made in the way of a client's request."""
        catalog = ModelVoices(self.checkpoint, VoiceConfig(), self.tokenizer)
        name = case.speaker or DESIGNED
        if case.family.model_type == "base":
            name = "ada"
            in_context = case.frames is not None
            text, codes = (REFERENCE_TEXT, case.reference_codes) if in_context else (None, None)
            catalog.add(ClonedVoice(name, case.speaker_vector, text, codes))
        layout = TextLayout.STREAMING if case.streaming else TextLayout.NON_STREAMING
        return catalog.prompt(SpeechRequest(name, case.language, case.instructions or None, layout))

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text, made in the way of a client's text."""
        utterance = UtteranceText(TextRules(trim=False), self.tokenizer, 1000)
        return [token.id for token in [*utterance.push(text), *utterance.end()]]


@pytest.fixture(scope="session")
def local_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LocalModel]:
    """The small model of a variant."""
    root = tmp_path_factory.mktemp("family")
    made: dict[str, LocalModel] = {}

    def small(name: str) -> LocalModel:
        if name not in made:
            variant = VARIANTS[name]
            write_checkpoint(
                root / name, variant, lambda folder: (model_shapes(folder, variant), codec_shapes(folder)), _save
            )
            made[name] = LocalModel(variant, root / name)
        return made[name]

    return small


def model_shapes(folder: Path, variant: Variant) -> Shapes:
    """Every tensor of `model.safetensors`, from the modules of this project."""
    shapes = {f"talker.{name}": shape for name, shape in talker_shapes(load_checkpoint(folder)).items()}
    if variant.model_type == "base":
        with torch.device("meta"):
            encoder = SpeakerEncoder(SpeakerEncoderConfig.from_checkpoint(folder))
        shapes |= {f"speaker_encoder.{name}": tuple(part.shape) for name, part in encoder.state_dict().items()}
    return shapes


def codec_shapes(folder: Path) -> Shapes:
    """Every tensor of `speech_tokenizer/model.safetensors`, from the modules of this project."""
    codec = folder / "speech_tokenizer"
    config = DecoderConfig.from_checkpoint(codec)
    shapes = {f"decoder.{name}": shape for name, shape in decoder_shapes(config).items()}
    half = config.codebook_dim // 2
    for stack in ("first", "rest"):
        # In the file, and not needed for decoding.
        shapes[f"decoder.quantizer.rvq_{stack}.input_proj.weight"] = (half, config.codebook_dim, 1)
    with torch.device("meta"):
        encoder = CodecEncoder(EncoderConfig.from_checkpoint(codec))
    return shapes | {f"encoder.{name}": tuple(part.shape) for name, part in encoder.state_dict().items()}


def _save(tensors: dict[str, np.ndarray], path: Path) -> None:
    save_file({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, path)
