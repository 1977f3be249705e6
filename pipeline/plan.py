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

    def ahead(self, heard: int, *, sounded: bool) -> int:
        """How far generation may run ahead of the listener, who has heard so many frames; `sounded`: one was decoded.

        Everybody's first seconds, made at full speed, would be in the way of everybody's first word. Where steps are
        quick enough, what is ahead grows as it is heard, at twice the speed of speech.
        """
        if not sounded and self.undecoded_frames is not None:
            return self.undecoded_frames
        if self.first_frames is None or not self.paced:
            return self.ahead_frames
        return min(self.ahead_frames, self.first_frames + heard)

    def cap(self, tokens: int, before: int) -> int:
        """The most frames that a generation of so many tokens may have, after `before` frames of others."""
        cap = self.rules.limits.max_frames(tokens)
        return cap if self.max_frames is None else min(cap, max(0, self.max_frames - before))
