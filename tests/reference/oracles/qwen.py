"""Imports and loads the reference package without the packages that only its other codec needs."""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from family_cases import REFERENCE_TEXT, ReferenceCase
from safetensors.torch import save_file
from small_family import CODEC, VARIANTS, config, write_checkpoint
from small_tokenizer import write_tokenizer

for absent in ("sox", "onnxruntime", "torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
    # Only the 25 Hz codec uses these packages, and the module imports them.
    if absent not in sys.modules:
        stub = sys.modules[absent] = ModuleType(absent)
        stub.__spec__ = ModuleSpec(absent, None, is_package=True)
        parent, _, child = absent.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, stub)

from qwen_tts import Qwen3TTSModel, VoiceClonePromptItem  # noqa: E402 - after the stubs
from qwen_tts.core import Qwen3TTSTokenizerV2Config, Qwen3TTSTokenizerV2Model  # noqa: E402 - likewise
from qwen_tts.core.models import (  # noqa: E402 - likewise
    Qwen3TTSConfig,
    Qwen3TTSForConditionalGeneration,
    Qwen3TTSProcessor,
)
from transformers.utils import logging  # noqa: E402 - likewise

__all__ = ["Qwen3TTSConfig", "Qwen3TTSProcessor", "codec_shapes", "model", "model_shapes", "speak"]

logging.set_verbosity_error()

torch.set_num_threads(1)
torch.manual_seed(0)


def shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """Of every tensor that the reference's own class keeps in its file."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@cache
def codec_shapes() -> dict[str, tuple[int, ...]]:
    return shapes(Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**CODEC)))


@cache
def model_shapes(name: str, folder: Path) -> dict[str, tuple[int, ...]]:
    document = config(VARIANTS[name], write_tokenizer(folder))
    return shapes(Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**document)))


@cache
def model(name: str, work: Path) -> Qwen3TTSModel:
    """The small model of a variant, written to a folder and loaded by the reference."""
    folder = work / name
    if not folder.exists():
        own_shapes = model_shapes(name, work), codec_shapes()
        write_checkpoint(folder, VARIANTS[name], lambda _: own_shapes, _save)
    return Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32, attn_implementation="eager")


def speak(case: ReferenceCase, work: Path) -> dict[str, Any]:
    """One utterance by the reference: its prompt, codes, and audio.

    `prompt`: float32 [positions, hidden]; `trailing`: float32 [text positions after it, hidden]; `codes`: [frames, 16].
    """
    tts = model(case.variant, work)
    heard: dict[str, Any] = {}
    talker_generate, generate = tts.model.talker.generate, tts.model.generate

    def listen_to_prompt(*args: Any, **kwargs: Any) -> Any:
        heard["prompt"] = kwargs["inputs_embeds"][0].numpy()
        heard["trailing"] = kwargs["trailing_text_hidden"][0].numpy()
        return talker_generate(*args, **kwargs)

    def listen_to_codes(*args: Any, **kwargs: Any) -> Any:
        codes, hidden = generate(*args, **kwargs)
        heard["codes"] = codes[0].numpy()
        return codes, hidden

    tts.model.talker.generate, tts.model.generate = listen_to_prompt, listen_to_codes
    try:
        (audio,), _ = _ask(tts, case)
    finally:
        tts.model.talker.generate, tts.model.generate = talker_generate, generate
    return heard | {"audio": audio}


def _ask(tts: Qwen3TTSModel, case: ReferenceCase) -> Any:
    options: dict[str, Any] = {
        "text": case.text,
        "language": case.language,
        "non_streaming_mode": not case.streaming,
        "do_sample": False,
        "subtalker_dosample": False,
        "repetition_penalty": case.penalty,
        "max_new_tokens": case.max_new_tokens,
    }
    if case.family.model_type == "custom_voice":
        return tts.generate_custom_voice(speaker=case.speaker, instruct=case.instructions or None, **options)
    if case.family.model_type == "voice_design":
        return tts.generate_voice_design(instruct=case.instructions, **options)
    in_context = case.frames is not None
    voice = VoiceClonePromptItem(
        ref_code=torch.from_numpy(case.reference_codes) if in_context else None,
        ref_spk_embedding=torch.from_numpy(case.speaker_vector),
        x_vector_only_mode=not in_context,
        icl_mode=in_context,
        ref_text=REFERENCE_TEXT if in_context else None,
    )
    return tts.generate_voice_clone(voice_clone_prompt=[voice], **options)


def _save(tensors: dict[str, np.ndarray], path: Path) -> None:
    save_file({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
