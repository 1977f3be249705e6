"""The prompt, position by position, as `docs/qwen3_tts.md`, sections 4.2 to 4.5, defines it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from voxgate.pipeline.checkpoint.checkpoint import CodecIds, TalkerCheckpoint, TextIds
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.errors import UnknownLanguage, UnknownVoice, UnsupportedOption
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.ipc.slot_tables import NO_ENTRY, SPEAKER
from voxgate.pipeline.talker.prompt import (
    Prompt,
    cloned_voice_prompt,
    custom_voice_prompt,
    offered_languages,
    takes_instructions,
    voice_design_prompt,
)

ROLE = [(151644, -1), (77091, -1), (198, -1)]
PAD = 151671
NO_LANGUAGE = [(PAD, 2155), (PAD, 2156), (PAD, 2157)]
HEAD_END = (151672, 2148)
BEGIN, FILLER = 2149, 2148
INSTRUCT = [151644, 872, 198, 41, 151645, 198]
WHOLE = TextLayout.NON_STREAMING


def tagged(language: int) -> list[tuple[int, int]]:
    return [(PAD, 2154), (PAD, 2156), (PAD, language), (PAD, 2157)]


def head(prompt: Prompt) -> list[tuple[int, int]]:
    """Both sides before begin-of-codec, where at most codebook 0 has an entry."""
    assert (prompt.head[:, 1:] == NO_ENTRY).all()
    return list(zip(prompt.text, prompt.head[:, 0].tolist(), strict=True))


@pytest.fixture
def published(checkpoint: TalkerCheckpoint) -> TalkerCheckpoint:
    """A checkpoint with the published 1.7B model's ids."""
    return replace(
        checkpoint,
        model_size="1b7",
        text_ids=TextIds(151644, 151645, 77091, 198, PAD, 151672, 151673),
        codec_ids=CodecIds(2148, 2149, 2150, 2154, 2155, 2156, 2157),
        speakers={"ryan": 3061, "eric": 2875, "dylan": 2878},
        dialects={"eric": "sichuan_dialect", "dylan": "beijing_dialect"},
        languages={"english": 2050, "chinese": 2055, "sichuan_dialect": 2062, "beijing_dialect": 2074},
    )


TAGS = [
    ("ryan", "auto", NO_LANGUAGE, 3061),
    ("ryan", "english", tagged(2050), 3061),
    ("ryan", "chinese", tagged(2055), 3061),
    ("eric", "auto", tagged(2062), 2875),
    ("eric", "chinese", tagged(2062), 2875),
    ("dylan", "chinese", tagged(2074), 2878),
    ("eric", "english", tagged(2050), 2875),
]


@pytest.mark.parametrize(("speaker", "language", "tag", "row"), TAGS)
def test_positions_are_role_language_speaker_begin_of_text(
    published: TalkerCheckpoint, speaker: str, language: str, tag: list[tuple[int, int]], row: int
) -> None:
    prompt = custom_voice_prompt(published, speaker, language)
    assert head(prompt) == [*ROLE, *tag, (PAD, row), HEAD_END]
    assert prompt.codec(7)[len(prompt.head) :, 0].tolist() == [BEGIN]
    assert prompt.text_needed() == 1


@pytest.mark.parametrize(("speaker", "language", "tag", "row"), TAGS)
def test_instructions_come_first_without_codec_side(
    published: TalkerCheckpoint, speaker: str, language: str, tag: list[tuple[int, int]], row: int
) -> None:
    instruct = [(token, -1) for token in INSTRUCT]
    prompt = custom_voice_prompt(published, speaker, language, INSTRUCT)
    assert head(prompt) == [*instruct, *ROLE, *tag, (PAD, row), HEAD_END]


def test_non_streaming_text_is_summed_with_codec_padding(published: TalkerCheckpoint) -> None:
    prompt = custom_voice_prompt(published, "ryan", "auto", (), WHOLE)
    assert prompt.text_needed() is None
    # The text, its end, and then padding that meets begin-of-codec.
    assert prompt.codec(5)[len(prompt.head) :, 0].tolist() == [FILLER] * 6 + [BEGIN]
    assert prompt.positions(5) == len(prompt.text) + 5 + 2


@pytest.mark.parametrize("layout", list(TextLayout))
@pytest.mark.parametrize(("language", "tag"), [("auto", NO_LANGUAGE), ("Chinese", tagged(2055))])
def test_designed_voice_has_no_speaker(
    published: TalkerCheckpoint, language: str, tag: list[tuple[int, int]], layout: TextLayout
) -> None:
    designing = replace(published, model_type="voice_design", speakers={}, dialects={})
    prompt = voice_design_prompt(designing, language, INSTRUCT, layout)
    assert head(prompt) == [*((token, -1) for token in INSTRUCT), *ROLE, *tag, HEAD_END]


@pytest.fixture
def base(published: TalkerCheckpoint) -> TalkerCheckpoint:
    return replace(published, model_type="base", speakers={}, dialects={})


def voice(base: TalkerCheckpoint, frames: int | None = None) -> ClonedVoice:
    vector = np.ones(base.talker.hidden, np.float32)
    if frames is None:
        return ClonedVoice("ada", vector)
    return ClonedVoice("ada", vector, "Hello.", np.arange(frames * base.groups).reshape(frames, -1))


def test_cloned_voice_has_vector_in_place_of_speaker(base: TalkerCheckpoint) -> None:
    ada = voice(base)
    prompt = cloned_voice_prompt(base, ada, "english")
    assert head(prompt) == [*ROLE, *tagged(2050), (PAD, SPEAKER), HEAD_END]
    assert prompt.speaker_vector is ada.speaker_vector
    assert prompt.text_needed() == 1


def test_speech_continues_after_last_reference_frame(base: TalkerCheckpoint) -> None:
    ada = voice(base, 6)
    prompt = cloned_voice_prompt(base, ada, "auto", [31, 32])
    at = len(prompt.head)
    assert prompt.text[:at] == (151644, 77091, 198, PAD, PAD, PAD, PAD, 151672)
    assert prompt.text[at:] == (31, 32)
    codec = prompt.codec(50)
    assert codec[at].tolist() == [BEGIN] + [NO_ENTRY] * (base.groups - 1)
    assert ada.reference_codes is not None
    assert codec[at + 1 :].tolist() == ada.reference_codes.tolist()
    # Begin-of-codec and six frames are summed with two tokens of the reference's and five of the text.
    assert prompt.text_needed() == 5


def test_non_streaming_text_follows_reference_text(base: TalkerCheckpoint) -> None:
    ada = voice(base, 3)
    prompt = cloned_voice_prompt(base, ada, "auto", [31, 32], WHOLE)
    codec = prompt.codec(4)[len(prompt.head) :]
    assert codec[:, 0].tolist() == [FILLER] * 7 + [BEGIN, 0, 16, 32]
    assert (codec[:8, 1:] == NO_ENTRY).all()
    assert ada.reference_codes is not None
    assert codec[8:].tolist() == ada.reference_codes.tolist()


def test_reference_text_may_be_longer_than_its_frames(base: TalkerCheckpoint) -> None:
    prompt = cloned_voice_prompt(base, voice(base, 2), "auto", range(9))
    assert prompt.text_needed() == 1
    assert prompt.positions(1) == len(prompt.text) == len(prompt.head) + 9


def test_names_are_case_insensitive(published: TalkerCheckpoint) -> None:
    assert head(custom_voice_prompt(published, "Eric", "Chinese")) == head(
        custom_voice_prompt(published, "eric", "chinese")
    )


def test_demo_voice_uses_its_own_ids(checkpoint: TalkerCheckpoint) -> None:
    assert head(custom_voice_prompt(checkpoint, "heart", "auto")) == [
        (1, -1),
        (3, -1),
        (4, -1),
        (5, 516),
        (5, 517),
        (5, 518),
        (5, 520),
        (6, 512),
    ]


def test_unknown_voice_error_lists_voices(published: TalkerCheckpoint) -> None:
    with pytest.raises(UnknownVoice, match="unknown voice 'bob'; the model has: dylan, eric, ryan"):
        custom_voice_prompt(published, "bob", "auto")


@pytest.mark.parametrize("language", ["klingon", "", "sichuan_dialect"])
def test_unknown_language_is_refused(published: TalkerCheckpoint, language: str) -> None:
    with pytest.raises(UnknownLanguage, match=r"the model has: auto, chinese, english$"):
        custom_voice_prompt(published, "eric", language)


def test_models_that_take_instructions(published: TalkerCheckpoint, base: TalkerCheckpoint) -> None:
    small = replace(published, model_size="0b6")
    assert takes_instructions(published)
    assert takes_instructions(replace(published, model_type="voice_design"))
    assert not takes_instructions(small)
    assert not takes_instructions(base)
    with pytest.raises(UnsupportedOption) as caught:
        custom_voice_prompt(small, "ryan", "auto", INSTRUCT)
    assert caught.value.param == "instructions"


def test_dialects_are_not_offered_as_languages(published: TalkerCheckpoint) -> None:
    assert offered_languages(published) == ("auto", "chinese", "english")
