"""What an utterance remembers between the request to take text back and the speech that replaces the present one."""

from __future__ import annotations

from dataclasses import dataclass

from voxgate.pipeline.interface import CodeRun

from .accepted_text import TextMark

WAIT_S = 0.5
"""Seconds that the end of a word is waited for, at most: a talker has made it by then, or is late in any case."""


@dataclass(slots=True)
class PendingRetraction:
    """Text to be taken back, once it is known where the speech is to be cut."""

    kept: int
    """Offset in the text from which it is taken back, if that was not spoken."""
    end: TextMark
    """The text when the client asked: what comes later stays."""
    message_id: str | None
    deadline_s: float
    """When the end of a word is no longer waited for."""
    ended: bool
    """Whether that text was ended."""
    speech_over: bool = False
    """Whether no audio follows."""
    waits: bool = False
    """Whether nothing changes before more audio comes."""


@dataclass(slots=True)
class Rewinding:
    """The utterance's speech is being closed, and another one follows with these codes."""

    past: tuple[CodeRun, ...]
    seed: int
    spoken_limit: int
    """Length of the text that the closed speech may have spoken."""
    closed: bool = False
    """Whether the old speech no longer uses its slot."""
    due: bool = False
    """Whether a slot was granted before that."""
