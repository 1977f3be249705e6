"""How one utterance is spoken: everything but its text; its slots, and the count of its frames."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from voxgate.codecs.pcm import FRAME_MS

from ..checkpoint.voice_config import VoiceConfig
from ..code_log import CodeLog
from ..codec.resumable_stream import UtteranceCodec
from ..codec.stream import CodecContext
from ..interface import NATURAL, LeasedSlots, Prosody
from ..talker.generation import Continuation, Generation, Sampling
from ..talker.prompt import Prompt

FIRST_CHARACTERS = 16
"""Characters of a long first fragment that are tokenized before the rest: enough for the first token, with which the
talker begins."""
MAX_TRIMMED_FRAMES = 12
"""Most frames of leading silence that are cut off, about 1 s."""


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
    prosody: Prosody = NATURAL
    """Rate and volume at the beginning."""
    codes: CodeLog = field(default_factory=CodeLog)
    """Codes that are known already, and those to be kept."""

    def lookahead(self, heard: int, *, decoded: bool, rate: float = 1.0) -> int:
        """Returns how far generation may run ahead once `heard` frames were heard.

        `decoded`: whether the first chunk was. `rate`: that of the speech, because the lookahead is of audio. The first
        seconds of all utterances, generated at full speed, would delay the first audio of new ones; so where steps are
        quick the lookahead grows with playback, and generation runs at twice the speed of speech.
        """
        if not decoded and self.frames_before_first_pcm is not None:
            return self.frames_before_first_pcm
        frames = math.ceil(self.lookahead_frames * rate)
        if self.initial_burst_frames is None or not self.paced:
            return frames
        return min(frames, math.ceil(self.initial_burst_frames * rate) + heard)

    def prepare(self, generation: Generation, number: int, behind: Continuation | None) -> None:
        """Prepares the generation of that number, from 1 on; `behind`: what it continues."""
        # Each generation has a seed of its own, or equal words would sound equal to the sample.
        sampling = self.sampling
        if number > 1:
            sampling = replace(sampling, seed=(sampling.seed + number - 1) % 2**63)
        generation.prepare(self.prompt, sampling, self.rules.limits.frames_floor, behind, paced=self.paced)

    def frame_cap(self, tokens: int, before: int) -> int:
        """Returns the most frames of a generation of `tokens` tokens, after `before` frames of the utterance."""
        cap = self.rules.limits.max_frames(tokens)
        return cap if self.max_frames is None else min(cap, max(0, self.max_frames - before))


@dataclass(slots=True)
class FrameCounts:
    """Frames of an utterance."""

    generated: int = 0
    """By all generations."""
    before: int = 0
    """Of these, before the generation in progress."""
    passed: int = 0
    """Of these, behind the playback position: heard, or cut off."""
    delivered: int = 0
    """Decoded and not cut off."""

    def due(self, first_frame_s: float | None, now_s: float, *, paced: bool) -> int:
        """Returns how many are no longer urgent: those behind the playback position.

        Unpaced speech has none; its frames are due as if it were played in real time from its first frame on.
        """
        if paced or first_frame_s is None:
            return self.passed
        return min(self.generated, int((now_s - first_frame_s) * 1000) // FRAME_MS)


@dataclass(slots=True)
class SpeechSlots:
    """What an utterance does in its slots: begin generations in the talker's, decode in the codec's.

    `after_close`: awaited once when both were closed.
    """

    open_generation: Callable[[], Generation]
    codec: UtteranceCodec
    after_close: Callable[[], Awaitable[None]] | None = None

    async def wait_free(self) -> None:
        """Waits until another utterance may use them. Safe to call twice."""
        wait, self.after_close = self.after_close, None
        if wait is not None:
            await wait()


TakeSlots = Callable[[LeasedSlots | None, CodecContext], SpeechSlots]
"""Opens an utterance in the leased slots, or in free ones, behind frames of the codec.

Raises EngineNotReady, AtCapacity."""
