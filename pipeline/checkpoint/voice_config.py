"""The description file of a voice model, `voice.toml` in the checkpoint folder: text, frame limits and voices."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _ConfigSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextRules(_ConfigSection):
    """How text is prepared for the voices; the defaults leave it unchanged."""

    spoken_form: Literal["en"] | None = None
    """Language in which numbers and symbols are spelled out before the tokenizer."""
    closing_mark: str = ""
    """Appended to a text that does not end in one of . ? !"""
    trim: bool = True
    """Whether white space at both ends of a text is dropped; the reference implementation keeps it."""
    segment_tokens: int = Field(default=0, ge=0)
    """Tokens after which a new generation begins at the next end of a sentence; 0: never."""


NO_LIMIT = 2**31 - 1
"""Frames, more than any slot holds."""


class FrameLimits(_ConfigSection):
    """Limits on speech that does not end where it should, in frames of 80 ms; each can be switched off."""

    frames_floor: int = Field(default=192, ge=1)
    """Speech is never cut for its length before this many frames."""
    frames_per_token: int = Field(default=12, ge=0)
    """Most frames per token of the text; 0: no limit."""
    silent_frames: int = Field(default=50, ge=0)
    """Silent frames after the end of the text at which speech is ended; 0: never."""
    early_end: bool = False
    """Whether the model may end speech before it has read all text."""

    def max_frames(self, tokens: int) -> int:
        """Returns the frames after which a generation of `tokens` text tokens is cut."""
        if not self.frames_per_token:
            return NO_LIMIT
        return max(self.frames_floor, self.frames_per_token * tokens)


class VoiceEntry(_ConfigSection):
    """What clients learn about one voice of the checkpoint."""

    display: str = ""
    """Name to show to users; the voice's name if empty."""
    description: str = ""
    languages: tuple[str, ...] = ()
    """Languages that it speaks besides "auto" and those of the checkpoint's table."""
    gender: Literal["", "female", "male"] = ""
    """How it sounds; stock voices of other services are spoken by a voice of the same gender and accent."""
    accent: str = ""
    """Its accent in one word in lower case, such as "american" or "scottish"."""


class VoiceConfig(_ConfigSection):
    """The content of `voice.toml`."""

    text: TextRules = TextRules()
    limits: FrameLimits = FrameLimits()
    voice: dict[str, VoiceEntry] = Field(default_factory=dict)
    """By name, as in the checkpoint's speaker table, in the order of the list of voices; the first is the default."""


def load_voice_config(folder: Path) -> VoiceConfig:
    """Reads `voice.toml` of a checkpoint folder; returns the defaults when there is none.

    Raises pydantic.ValidationError for unknown keys or wrong values, tomllib.TOMLDecodeError for invalid TOML.
    """
    path = folder / "voice.toml"
    if not path.exists():
        return VoiceConfig()
    return VoiceConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
