"""Voices to store in tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.cloning.store import StoredVoice, VoiceOrigin

ORIGIN = VoiceOrigin(checkpoint="small", space="here", source="recording", made="2026-01-02T03:04:05+00:00")


def stored_voice(name: str = "ada", origin: VoiceOrigin = ORIGIN, **changes: Any) -> StoredVoice:
    vector = np.random.RandomState(len(name)).standard_normal(8).astype(np.float32)
    return StoredVoice(ClonedVoice(**{"name": name, "speaker_vector": vector} | changes), origin)


def in_context_voice(name: str = "bob") -> StoredVoice:
    codes = np.arange(48).reshape(3, 16)
    return stored_voice(
        name, reference_text="Grüße, 你好.", reference_codes=codes, languages=("german",), description="A friend."
    )


def parts(stored: StoredVoice) -> tuple[Any, ...]:
    """Everything a voice is made of, to compare."""
    voice = stored.voice
    codes = None if voice.reference_codes is None else voice.reference_codes.tolist()
    vector = voice.speaker_vector.tolist()
    return voice.name, vector, voice.reference_text, codes, voice.languages, voice.description, stored.origin
