"""The cases of the comparison: every task and layout, with short texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from small_family import CODEBOOK, GROUPS, VARIANTS, Variant

SHORT = "Hello world."
LONG = "the train leaves at nine, and it rained all night."
BLANKS = " \t Hello world. \n "
"""White space at both ends, which the reference speaks; in the other layout it changes the first frame."""
REFERENCE_TEXT = "The voice, calm."


@dataclass(frozen=True)
class ReferenceCase:
    """One utterance. `frames`: of the reference recording, None for the speaker vector alone."""

    variant: str
    text: str = SHORT
    language: str = "auto"
    speaker: str | None = None
    instructions: str = ""
    frames: int | None = None
    streaming: bool = True
    penalty: float = 1.0
    max_new_tokens: int = 16
    seed: int = 0

    @property
    def name(self) -> str:
        parts = (
            *(self.variant, self.language, self.speaker, f"{len(self.text)}t", self.instructions and "told"),
            *(self.frames and f"{self.frames}f", "" if self.streaming else "whole", f"{self.penalty}"),
            *(f"{self.max_new_tokens}m", f"{self.seed}s"),
        )
        return " ".join(part for part in parts if part)

    @property
    def family(self) -> Variant:
        return VARIANTS[self.variant]

    @property
    def speaker_vector(self) -> np.ndarray:
        """float32 [talker hidden]"""
        return np.random.RandomState(100 + self.seed).standard_normal(self.family.hidden).astype(np.float32)

    @property
    def reference_codes(self) -> np.ndarray:
        """int64 [frames, groups]"""
        assert self.frames is not None
        return np.random.RandomState(200 + self.seed).randint(0, CODEBOOK, (self.frames, GROUPS)).astype(np.int64)


SPOKEN = (
    ReferenceCase("0b6-custom_voice", speaker="ryan"),
    ReferenceCase("0b6-custom_voice", LONG, "english", speaker="ryan", penalty=1.3),
    ReferenceCase("0b6-custom_voice", BLANKS, speaker="ryan", penalty=1.3),
    ReferenceCase("1b7-custom_voice", BLANKS, "english", speaker="ryan", penalty=1.3),
    # The reference drops instructions of small models.
    ReferenceCase("1b7-custom_voice", LONG, "english", speaker="ryan", instructions="speak softly.", penalty=1.3),
    ReferenceCase("1b7-custom_voice", speaker="eric", max_new_tokens=5),
    ReferenceCase("1b7-custom_voice", language="chinese", speaker="eric", penalty=1.1),
    ReferenceCase("1b7-custom_voice", language="english", speaker="dylan"),
    ReferenceCase("1b7-voice_design", LONG, instructions="a calm voice.", penalty=1.3),
    ReferenceCase("1b7-voice_design", language="german", instructions="speak softly, and calm."),
    ReferenceCase("0b6-base", LONG, penalty=1.3),
    ReferenceCase("0b6-base", LONG, "german", frames=6, penalty=1.3),
    ReferenceCase("1b7-base", language="english"),
    # Reference audio shorter than its text, equally long, and longer than all text.
    ReferenceCase("1b7-base", LONG, frames=2, penalty=1.3),
    ReferenceCase("1b7-base", LONG, "english", frames=9, penalty=1.3, seed=1),
    ReferenceCase("1b7-base", SHORT, frames=40, penalty=1.3, seed=2),
)
"""Greedy, in the streaming layout; each case is also spoken in the other layout."""

CASES = tuple(replace(case, streaming=streaming) for case in SPOKEN for streaming in (True, False))

HEARD = tuple(case.name for case in CASES if case.variant == "1b7-base" and case.frames in (2, 9) and case.streaming)
"""Cases whose audio is compared, after the part of the reference audio is cut off."""

DECODED_FRAMES = (1, 7)


def decoded_codes(frames: int) -> np.ndarray:
    """int64 [frames, groups]"""
    return np.random.RandomState(300 + frames).randint(0, CODEBOOK, (frames, GROUPS)).astype(np.int64)


RECORDINGS = (
    ("0b6-base", 24_000, 24_000),
    ("0b6-base", 24_000, 36_001),
    ("1b7-base", 24_000, 57_599),
    ("1b7-base", 16_000, 20_000),
    ("1b7-base", 44_100, 66_150),
)
"""Inputs of the encoders: model, sample rate in Hz and number of samples."""


def recording(samples: int) -> np.ndarray:
    """float32 [samples]: noise whose loudness varies."""
    noise = np.random.RandomState(400 + samples).standard_normal(samples)
    swell = 0.06 + 0.05 * np.sin(np.arange(samples) / 2000)
    return (noise * swell).clip(-1, 1).astype(np.float32)


TOKENIZED = (
    "Hello world.",
    "OpenAI, iPhone and YouTube; don'tcha don't",
    "3.14 and 1,000 nights!?  Two  spaces\tand a tab",
    "caf\u00e9 cafe\u0301 na\u00efve \u4f60\u597d\uff0c\u4e16\u754c\u3002 \ud55c\uad6d\uc5b4",
    "line\none\n\nand  \n two ",
    "a/b\n/c (quoted) \u201cquotes\u201d \U0001f600\u200d",
    "THE TRAIN LEAVES aT nInE",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    BLANKS,
)
"""Texts that the two patterns split differently, and some that both split alike."""
