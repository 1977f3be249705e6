"""How one utterance is spoken: everything but its text."""

from __future__ import annotations

from dataclasses import dataclass

from .checkpoint.voice_config import VoiceConfig
from .talker.generation import Sampling
from .talker.prompt import Prompt


@dataclass(frozen=True, slots=True)
class UtterancePlan:
    """How one utterance is spoken; everything but its text."""

    prompt: Prompt
    sampling: Sampling
    max_frames: int | None
    lookahead_frames: int
    """How far generation may run ahead of playback."""
    rules: VoiceConfig
    paced: bool = True
    """Whether the audio is played as it is made; otherwise it is only stored, as fast as it comes."""
    trim_silence: bool = False
    """Whether silence before the first word is cut off."""
    initial_burst_frames: int | None = None
    """Frames of the lookahead that are generated at once; each frame heard then adds one. None: all of them."""
    frames_before_first_pcm: int | None = None
    """Frames generated before the first is decoded. Where talker and codec share a device, more would delay it."""

    def lookahead(self, heard: int, *, decoded: bool) -> int:
        """Returns how far generation may run ahead once `heard` frames were heard.

        `decoded`: whether the first chunk was. The first seconds of all utterances, generated at full speed, would
        delay the first audio of new ones; so where steps are quick the lookahead grows with playback, and generation
        runs at twice the speed of speech.
        """
        if not decoded and self.frames_before_first_pcm is not None:
            return self.frames_before_first_pcm
        if self.initial_burst_frames is None or not self.paced:
            return self.lookahead_frames
        return min(self.lookahead_frames, self.initial_burst_frames + heard)

    def frame_cap(self, tokens: int, before: int) -> int:
        """Returns the most frames of a generation of `tokens` tokens, after `before` frames of earlier generations."""
        cap = self.rules.limits.max_frames(tokens)
        return cap if self.max_frames is None else min(cap, max(0, self.max_frames - before))
