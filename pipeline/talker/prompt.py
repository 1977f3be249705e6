"""The talker's prompt by kind of checkpoint and voice (`docs/qwen3_tts.md`, sections 4.2 to 4.5), and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checkpoint.checkpoint import TalkerCheckpoint
from ..cloned_voice import MAX_REFERENCE_FRAMES, ClonedVoice
from ..errors import UnknownLanguage, UnknownVoice, UnsupportedOption
from ..interface import TextLayout
from ..ipc.slot_tables import NO_ENTRY, SPEAKER

MAX_INSTRUCTION_TOKENS = 500
"""Longest instruction, in tokens."""

MAX_REFERENCE_TEXT_TOKENS = 512
"""Longest text of a reference recording, in tokens: thirty seconds of fast speech have some 150."""

MAX_TEXT_TOKENS = 512
"""Longest text of one generation, in tokens."""

SLOW_FRAMES_PER_TOKEN = 4
"""Frames per text token of slow speech: a slot takes no more text than it has frames for."""

_FIXED_POSITIONS = 16
"""Positions of every prompt: role, language, speaker, begin-of-text, begin-of-codec."""

CodecSide = NDArray[np.int32]
"""int32 [positions, groups]: a row of each codebook's embedding, or NO_ENTRY; SPEAKER may be in the first column."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prompt:
    """Both sides of the prompt: each position's input is the sum of a text embedding and codec embeddings.

    `text`: the text side, token ids; the text to be spoken follows it, whatever the codec side has there. `head`: the
    codec side up to begin-of-text; `context`: its last positions, begin-of-codec and then the reference's frames;
    speech begins at the last of them. In the non-streaming layout, as many positions of `filler` as there is text come
    between the two. `speaker_vector`: float32 [talker hidden].
    """

    text: tuple[int, ...]
    head: CodecSide
    context: CodecSide
    layout: TextLayout
    filler: int
    speaker_vector: NDArray[np.float32] | None = None

    def codec(self, tokens: int) -> CodecSide:
        """The codec side up to where speech begins, int32 [positions, groups], for a text of `tokens` tokens."""
        if self.layout is TextLayout.STREAMING:
            return np.concatenate([self.head, self.context])
        filler = _codec_side([self.filler] * self._filled(tokens), self.head.shape[1])
        return np.concatenate([self.head, filler, self.context])

    def _filled(self, tokens: int) -> int:
        """Positions of `filler` in the non-streaming layout."""
        return len(self.text) - len(self.head) + tokens + 1  # one for end-of-text

    @property
    def reference(self) -> CodecSide:
        """The reference's frames, int32 [frames, groups]; 0 frames without a reference."""
        return self.context[1:]

    def positions(self, tokens: int) -> int:
        """Rows that the prompt takes in the prefix table, for a text of `tokens` tokens: the longer side decides."""
        filled = 0 if self.layout is TextLayout.STREAMING else self._filled(tokens)
        return max(len(self.text), len(self.head) + filled + len(self.context))

    def text_needed(self, frame: int = 0) -> int | None:
        """Text tokens that must be known before the step that makes `frame`; None when all of them must."""
        if self.layout is TextLayout.NON_STREAMING:
            return None
        return max(1, len(self.head) + len(self.context) - len(self.text) + frame)


def custom_voice_prompt(
    checkpoint: TalkerCheckpoint,
    speaker: str,
    language: str,
    instruct_ids: Sequence[int] = (),
    layout: TextLayout = TextLayout.STREAMING,
) -> Prompt:
    """A voice of the checkpoint. `instruct_ids`: the tokens of the whole instruction turn.

    Raises UnknownVoice, UnknownLanguage, UnsupportedOption.
    """
    row = checkpoint.speakers.get(speaker.lower())
    if row is None:
        raise UnknownVoice(f"unknown voice {speaker!r}; the model has: {', '.join(sorted(checkpoint.speakers))}")
    if instruct_ids and not takes_instructions(checkpoint):
        raise UnsupportedOption("this model does not take instructions", param="instructions")
    language = language.lower()
    # As in the reference implementation, a dialect speaker overrides "chinese" as well as "auto".
    dialect = checkpoint.dialects.get(speaker.lower()) if language in ("auto", "chinese") else None
    tag = _language_tag(checkpoint, language, dialect)
    return _prompt(checkpoint, [*tag, row], layout, instruct_ids=instruct_ids)


def voice_design_prompt(
    checkpoint: TalkerCheckpoint,
    language: str,
    instruct_ids: Sequence[int],
    layout: TextLayout = TextLayout.STREAMING,
) -> Prompt:
    """A voice that the instruction describes, without a speaker. Raises UnknownLanguage."""
    return _prompt(checkpoint, _language_tag(checkpoint, language.lower()), layout, instruct_ids=instruct_ids)


def cloned_voice_prompt(
    checkpoint: TalkerCheckpoint,
    voice: ClonedVoice,
    language: str,
    reference_ids: Sequence[int] = (),
    layout: TextLayout = TextLayout.STREAMING,
) -> Prompt:
    """A voice given by its speaker vector and, optionally, by a reference recording's text and frames.

    `reference_ids`: tokens of the reference's text.

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
    """Whether the model was trained to follow instructions (`docs/qwen3_tts.md`, section 2.5)."""
    kind, size = checkpoint.model_type, checkpoint.model_size
    return kind == "voice_design" or (kind == "custom_voice" and size == "1b7")


def offered_languages(checkpoint: TalkerCheckpoint) -> tuple[str, ...]:
    """Languages that a client may name; a dialect comes with its speaker only (`docs/qwen3_tts.md`, section 2.3)."""
    return ("auto", *sorted(name for name in checkpoint.languages if "dialect" not in name))


def _language_tag(checkpoint: TalkerCheckpoint, language: str, dialect: str | None = None) -> list[int]:
    codec = checkpoint.codec_ids
    if language not in offered_languages(checkpoint):
        raise UnknownLanguage(
            f"unknown language {language!r}; the model has: {', '.join(offered_languages(checkpoint))}"
        )
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
    """`entries`: codebook 0 of the codec side between the role and begin-of-text."""
    text, codec, groups = checkpoint.text_ids, checkpoint.codec_ids, checkpoint.groups
    role = (text.im_start, text.assistant, text.newline)
    no_codec = [NO_ENTRY] * (len(instruct_ids) + len(role))
    context = _codec_side([codec.bos], groups)
    if frames is not None:
        context = np.concatenate([context, frames.astype(np.int32)])
    return Prompt(
        text=(*instruct_ids, *role, *[text.pad] * len(entries), text.bos, *reference),
        head=_codec_side([*no_codec, *entries, codec.pad], groups),
        context=context,
        layout=layout,
        filler=codec.pad,
        speaker_vector=speaker_vector,
    )


def _codec_side(entries: Sequence[int], groups: int) -> CodecSide:
    """Positions with entries of codebook 0 alone, int32 [positions, groups]."""
    side = np.full((len(entries), groups), NO_ENTRY, np.int32)
    side[:, 0] = entries
    return side


def max_prompt_positions(checkpoint: TalkerCheckpoint) -> int:
    """Positions that a prompt of this checkpoint can take, besides those of the text to be spoken."""
    if checkpoint.model_type == "base":
        return _FIXED_POSITIONS + MAX_REFERENCE_TEXT_TOKENS + MAX_REFERENCE_FRAMES
    return _FIXED_POSITIONS + (MAX_INSTRUCTION_TOKENS if takes_instructions(checkpoint) else 0)
