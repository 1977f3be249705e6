"""What a talker reads before it speaks, by kind of checkpoint (Qwen3-TTS specification, sections B.3 and B.4)."""
# TODO-DOC How the talker's engine is to be made, and how much of a prompt it has room for.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checkpoint import TalkerCheckpoint
from ..cloned_voice import MAX_REFERENCE_FRAMES, ClonedVoice
from ..errors import UnknownLanguage, UnknownVoice, UnsupportedOption
from ..interface import TextLayout
from ..ipc.slot_tables import NO_ENTRY, SPEAKER

CodecSide = NDArray[np.int32]
"""int32 [positions, groups]: an embedding row of each codebook, or NO_ENTRY; SPEAKER may stand in the first column."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """Both sides of the prompt; the text to be spoken goes on after `text`, whatever the codec side has there.

    `head`: the codec side as far as begin-of-text; `context`: its last positions, begin-of-codec and then the
    reference's frames, the last of which is where speech begins. Between the two come, in the non-streaming layout
    alone, as many positions of `filler` as there is text. `speaker_vector`: float32 [talker hidden].
    """

    text: tuple[int, ...]
    head: CodecSide
    context: CodecSide
    layout: TextLayout
    filler: int
    speaker_vector: NDArray[np.float32] | None = None

    def codec(self, tokens: int) -> CodecSide:
        """The codec side of all positions up to where speech begins, for a text of `tokens` tokens."""
        if self.layout is TextLayout.STREAMING:
            return np.concatenate([self.head, self.context])
        filled = len(self.text) - len(self.head) + tokens + 1  # with end-of-text
        return np.concatenate([self.head, _codec_side([self.filler] * filled, self.head.shape[1]), self.context])

    @property
    def reference(self) -> CodecSide:
        """The reference's frames, [frames, groups]; none without one."""
        return self.context[1:]

    def positions(self, tokens: int) -> int:
        """Rows of the prompt's table for a text of `tokens` tokens: either side may be the longer one."""
        return max(len(self.text), len(self.codec(tokens)))

    @property
    def text_needed(self) -> int | None:
        """Text tokens that must be known before the first step; None when it is all of them."""
        if self.layout is TextLayout.NON_STREAMING:
            return None
        return max(1, len(self.head) + len(self.context) - len(self.text))


def custom_voice_prompt(
    checkpoint: TalkerCheckpoint,
    speaker: str,
    language: str,
    instruct_ids: Sequence[int] = (),
    layout: TextLayout = TextLayout.STREAMING,
) -> Prompt:
    """A voice of the checkpoint's own. `instruct_ids`: the instruction's tokens, used whole.

    Raises UnknownVoice, UnknownLanguage, UnsupportedOption.
    """
    row = checkpoint.speakers.get(speaker.lower())
    if row is None:
        raise UnknownVoice(f"no voice {speaker!r}; there are: {', '.join(sorted(checkpoint.speakers))}")
    if instruct_ids and not takes_instructions(checkpoint):
        raise UnsupportedOption("this model takes no instructions", param="instructions")
    language = language.lower()
    # A dialect speaker overrides "chinese" as well as "auto", as in the reference.
    dialect = checkpoint.dialects.get(speaker.lower()) if language in ("auto", "chinese") else None
    tag = _language_tag(checkpoint, language, dialect)
    return _prompt(checkpoint, [*tag, row], layout, instruct_ids=instruct_ids)


def voice_design_prompt(
    checkpoint: TalkerCheckpoint,
    language: str,
    instruct_ids: Sequence[int],
    layout: TextLayout = TextLayout.STREAMING,
) -> Prompt:
    """A voice that the instruction describes; there is no speaker. Raises UnknownLanguage."""
    return _prompt(checkpoint, _language_tag(checkpoint, language.lower()), layout, instruct_ids=instruct_ids)


def cloned_voice_prompt(
    checkpoint: TalkerCheckpoint,
    voice: ClonedVoice,
    language: str,
    reference_ids: Sequence[int] = (),
    layout: TextLayout = TextLayout.STREAMING,
) -> Prompt:
    """A speaker vector; with a reference, its text (`reference_ids`, its tokens) and its frames stand before the text.

    Raises UnknownLanguage.
    """
    entries = [*_language_tag(checkpoint, language.lower()), SPEAKER]
    codes = voice.reference_codes
    if codes is None:
        return _prompt(checkpoint, entries, layout, speaker_vector=voice.speaker_vector)
    return _prompt(
        checkpoint, entries, layout, speaker_vector=voice.speaker_vector, reference=reference_ids, frames=codes
    )


def takes_instructions(checkpoint: TalkerCheckpoint) -> bool:
    """Whether the model was trained to follow instructions (section A.7)."""
    kind, size = checkpoint.model_type, checkpoint.model_size
    return kind == "voice_design" or (kind == "custom_voice" and size == "1b7")


def offered_languages(checkpoint: TalkerCheckpoint) -> tuple[str, ...]:
    """Languages a client may name: dialect tags come with their speakers only (section A.5)."""
    return ("auto", *sorted(name for name in checkpoint.languages if "dialect" not in name))


def _language_tag(checkpoint: TalkerCheckpoint, language: str, dialect: str | None = None) -> list[int]:
    codec = checkpoint.codec_ids
    if language not in offered_languages(checkpoint):
        raise UnknownLanguage(f"no language {language!r}; there are: {', '.join(offered_languages(checkpoint))}")
    if dialect is None and language == "auto":
        return [codec.nothink, codec.think_bos, codec.think_eos]
    return [codec.think, codec.think_bos, checkpoint.languages[dialect or language], codec.think_eos]


def _prompt(
    checkpoint: TalkerCheckpoint,
    entries: Sequence[int],
    layout: TextLayout,
    *,
    instruct_ids: Sequence[int] = (),
    speaker_vector: NDArray[np.float32] | None = None,
    reference: Sequence[int] = (),
    frames: NDArray[np.int64] | None = None,
) -> Prompt:
    """`entries`: the codec side between the role and begin-of-text."""
    text, codec, groups = checkpoint.text_ids, checkpoint.codec_ids, checkpoint.groups
    role = (text.im_start, text.assistant, text.newline)
    silent = [NO_ENTRY] * (len(instruct_ids) + len(role))
    context = _codec_side([codec.bos], groups)
    if frames is not None:
        context = np.concatenate([context, frames.astype(np.int32)])
    return Prompt(
        text=(*instruct_ids, *role, *[text.pad] * len(entries), text.bos, *reference),
        head=_codec_side([*silent, *entries, codec.pad], groups),
        context=context,
        layout=layout,
        filler=codec.pad,
        speaker_vector=speaker_vector,
    )


def _codec_side(entries: Sequence[int], groups: int) -> CodecSide:
    """Positions that have an entry of codebook 0's table and nothing else."""
    side = np.full((len(entries), groups), NO_ENTRY, np.int32)
    side[:, 0] = entries
    return side


MAX_INSTRUCTION_TOKENS = 500
"""Longest instruction, in tokens."""

MAX_REFERENCE_TEXT_TOKENS = 512
"""Longest text of a reference recording, in tokens: thirty seconds of fast speech have some 150."""

_FIXED_POSITIONS = 16
"""Positions of a prompt that are always there: role, language, speaker, begin-of-text, begin-of-codec."""

MAX_TEXT_TOKENS = 512
"""Longest text of one generation, in tokens."""

SLOW_FRAMES_PER_TOKEN = 4
"""Slow speech: a slot takes no more text than it has frames to say it in."""


def max_prompt_positions(checkpoint: TalkerCheckpoint) -> int:
    """Positions that a prompt can take besides those of the text to be spoken."""
    if checkpoint.model_type == "base":
        return _FIXED_POSITIONS + MAX_REFERENCE_TEXT_TOKENS + MAX_REFERENCE_FRAMES
    return _FIXED_POSITIONS + (MAX_INSTRUCTION_TOKENS if takes_instructions(checkpoint) else 0)
