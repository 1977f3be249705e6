"""What the publishers' model card says of the speakers of the published CustomVoice checkpoints, which have no file."""

from __future__ import annotations

from collections.abc import Mapping

from .voice_config import VoiceEntry

PUBLISHED_SPEAKERS: Mapping[str, VoiceEntry] = {
    "aiden": VoiceEntry(gender="male", accent="american"),
    "dylan": VoiceEntry(gender="male", accent="chinese"),
    "eric": VoiceEntry(gender="male", accent="chinese"),
    "ono_anna": VoiceEntry(gender="female", accent="japanese"),
    "ryan": VoiceEntry(gender="male", accent="american"),
    "serena": VoiceEntry(gender="female", accent="chinese"),
    "sohee": VoiceEntry(gender="female", accent="korean"),
    "uncle_fu": VoiceEntry(gender="male", accent="chinese"),
    "vivian": VoiceEntry(gender="female", accent="chinese"),
}
"""By name, as in the checkpoint's speaker table; `voice.toml` comes first."""
