"""What an utterance is going to be, all of it settled before its first token."""

from __future__ import annotations

from dataclasses import dataclass

from .talker.generation import Sampling
from .talker.prompt import Prompt
from .text.rules import VoiceFile


@dataclass(frozen=True, slots=True)
class Plan:
    """How one utterance is spoken; its text follows."""

    prompt: Prompt
    sampling: Sampling
    max_frames: int | None
    ahead_frames: int
    """How far generation may run ahead of the listener."""
    rules: VoiceFile
    paced: bool = True
    """Heard as it is made; False for speech that is only stored, as fast as it comes."""
    trim_silence: bool = False
    """Cut off the silence before the first word."""
    first_frames: int | None = None
    """Of those ahead, how many are made at once; each one heard then brings one more. None for all at once."""
    undecoded_frames: int | None = None
    """How many are made before the first was decoded: the next would be in its way where both share a device."""
