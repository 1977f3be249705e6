"""The prefix that a talker reads before its first text token (Qwen3-TTS specification, sections B.3 and B.4)."""

from __future__ import annotations

from collections.abc import Sequence

from ..checkpoint import TalkerCheckpoint
from ..errors import UnknownLanguage, UnknownVoice, UnsupportedOption

NO_TRACK = -1
"""Marks a position that has no codec-side embedding."""

Prefix = list[tuple[int, int]]
"""One (text id, codec id or NO_TRACK) per position."""


def custom_voice_prefix(
    checkpoint: TalkerCheckpoint, speaker: str, language: str, instruct_ids: Sequence[int] = ()
) -> Prefix:
    """The custom-voice prompt in the streaming layout, without the position that carries the first text token.

    `instruct_ids`: the instruction's tokens, used whole. Raises UnknownVoice, UnknownLanguage, UnsupportedOption.
    """
    text, codec = checkpoint.text_ids, checkpoint.codec_ids
    row = checkpoint.speakers.get(speaker.lower())
    if row is None:
        raise UnknownVoice(f"no voice {speaker!r}; there are: {', '.join(sorted(checkpoint.speakers))}")
    if instruct_ids and not takes_instructions(checkpoint):
        raise UnsupportedOption("this model takes no instructions", param="instructions")
    tag = _language_tag(checkpoint, speaker.lower(), language.lower())
    role = (text.im_start, text.assistant, text.newline)
    return [
        *((token, NO_TRACK) for token in instruct_ids),
        *((token, NO_TRACK) for token in role),
        *((text.pad, entry) for entry in tag),
        (text.pad, row),
        (text.bos, codec.pad),
    ]


def takes_instructions(checkpoint: TalkerCheckpoint) -> bool:
    """Whether the model was trained to follow instructions: the 1.7B ones were (section A.7)."""
    return checkpoint.model_size == "1b7"


def offered_languages(checkpoint: TalkerCheckpoint) -> tuple[str, ...]:
    """Languages a client may name: dialect tags come with their speakers only (section A.5)."""
    return ("auto", *sorted(name for name in checkpoint.languages if "dialect" not in name))


def _language_tag(checkpoint: TalkerCheckpoint, speaker: str, language: str) -> list[int]:
    codec = checkpoint.codec_ids
    if language not in offered_languages(checkpoint):
        raise UnknownLanguage(f"no language {language!r}; there are: {', '.join(offered_languages(checkpoint))}")
    # A dialect speaker overrides "chinese" as well as "auto", as in the reference.
    if language in ("auto", "chinese") and speaker in checkpoint.dialects:
        language = checkpoint.dialects[speaker]
    if language == "auto":
        return [codec.nothink, codec.think_bos, codec.think_eos]
    return [codec.think, codec.think_bos, checkpoint.languages[language], codec.think_eos]
