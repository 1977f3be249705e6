"""What a voice's description file, `voice.toml` in the checkpoint folder, says about its text."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _ConfigSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextRules(_ConfigSection):
    """How text is prepared for the voice; the defaults leave it as it is."""

    spoken_form: Literal["en"] | None = None
    """Language whose numbers and symbols are spelled out before the tokenizer."""
    closing_mark: str = ""
    """Appended to a text that ends in none of . ? !"""
    segment_tokens: int = Field(default=0, ge=0)
    """After so many tokens a new generation begins at the next sentence end; 0 is never."""


NO_LIMIT = 2**31 - 1
"""More frames than any slot holds."""


class FrameLimits(_ConfigSection):
    """Guards against speech that does not end where it should, in frames of 80 ms; each can be switched off."""

    frames_floor: int = Field(default=192, ge=1)
    """Speech is never cut for its length before this."""
    frames_per_token: int = Field(default=12, ge=0)
    """Longest speech over a text, for each of its tokens; 0 is no such limit."""
    silent_frames: int = Field(default=50, ge=0)
    """After so many silent frames behind the end of its text, speech is ended; 0 is never."""
    early_end: bool = False
    """Whether speech may end before all its text was read, as the model alone would decide."""

    def max_frames(self, tokens: int) -> int:
        """Frames after which a generation over `tokens` text tokens is cut."""
        if not self.frames_per_token:
            return NO_LIMIT
        return max(self.frames_floor, self.frames_per_token * tokens)


class VoiceEntry(_ConfigSection):
    """What is told about one voice of the checkpoint."""

    display: str = ""
    """What to call it where people choose; empty: its name."""
    description: str = ""
    languages: tuple[str, ...] = ()
    """Languages it speaks besides "auto", where the checkpoint's own table says nothing."""


class VoiceConfig(_ConfigSection):
    """A whole `voice.toml`."""

    text: TextRules = TextRules()
    limits: FrameLimits = FrameLimits()
    voice: dict[str, VoiceEntry] = Field(default_factory=dict)
    """By name, as in the checkpoint's speaker table. Offered in this order; the first speaks when none is asked for."""


def load_voice_config(folder: Path) -> VoiceConfig:
    """Read `voice.toml` of a checkpoint folder; without one, the defaults.

    Raises pydantic.ValidationError for unknown keys or bad values, tomllib.TOMLDecodeError for bad TOML.
    """
    path = folder / "voice.toml"
    if not path.exists():
        return VoiceConfig()
    return VoiceConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
