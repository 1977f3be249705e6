"""The prompt, position by position, as sections B.3 and B.4 of the specification lay it out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from voxgate.pipeline.checkpoint import CodecIds, TalkerCheckpoint, TextIds
from voxgate.pipeline.errors import UnknownLanguage, UnknownVoice, UnsupportedOption
from voxgate.pipeline.talker.prompt import custom_voice_prefix, offered_languages, takes_instructions

ROLE = [(151644, -1), (77091, -1), (198, -1)]
PAD = 151671
NO_LANGUAGE = [(PAD, 2155), (PAD, 2156), (PAD, 2157)]
HEAD_END = (151672, 2148)
INSTRUCT = [151644, 872, 198, 41, 151645, 198]


def tagged(language: int) -> list[tuple[int, int]]:
    return [(PAD, 2154), (PAD, 2156), (PAD, language), (PAD, 2157)]


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
def test_role_then_language_then_speaker_then_begin_of_text(
    published: TalkerCheckpoint, speaker: str, language: str, tag: list[tuple[int, int]], row: int
) -> None:
    expected = [*ROLE, *tag, (PAD, row), HEAD_END]
    assert custom_voice_prefix(published, speaker, language) == expected


@pytest.mark.parametrize(("speaker", "language", "tag", "row"), TAGS)
def test_instructions_come_first_and_have_no_codec_side(
    published: TalkerCheckpoint, speaker: str, language: str, tag: list[tuple[int, int]], row: int
) -> None:
    instruct = [(token, -1) for token in INSTRUCT]
    expected = [*instruct, *ROLE, *tag, (PAD, row), HEAD_END]
    assert custom_voice_prefix(published, speaker, language, INSTRUCT) == expected


def test_names_are_taken_in_any_case(published: TalkerCheckpoint) -> None:
    assert custom_voice_prefix(published, "Eric", "Chinese") == custom_voice_prefix(published, "eric", "chinese")


def test_the_demo_voice_has_ids_of_its_own(checkpoint: TalkerCheckpoint) -> None:
    assert custom_voice_prefix(checkpoint, "slt", "auto") == [
        (1, -1),
        (3, -1),
        (4, -1),
        (5, 516),
        (5, 517),
        (5, 518),
        (5, 520),
        (6, 512),
    ]


def test_a_voice_that_is_not_there_is_answered_with_those_that_are(published: TalkerCheckpoint) -> None:
    with pytest.raises(UnknownVoice, match="no voice 'bob'; there are: dylan, eric, ryan"):
        custom_voice_prefix(published, "bob", "auto")


@pytest.mark.parametrize("language", ["klingon", "", "sichuan_dialect"])
def test_a_language_that_is_not_offered_is_refused(published: TalkerCheckpoint, language: str) -> None:
    with pytest.raises(UnknownLanguage, match=r"there are: auto, chinese, english$"):
        custom_voice_prefix(published, "eric", language)


def test_small_models_take_no_instructions(published: TalkerCheckpoint) -> None:
    small = replace(published, model_size="0b6")
    assert takes_instructions(published)
    assert not takes_instructions(small)
    with pytest.raises(UnsupportedOption) as caught:
        custom_voice_prefix(small, "ryan", "auto", INSTRUCT)
    assert caught.value.param == "instructions"


def test_dialects_are_not_languages_to_choose(published: TalkerCheckpoint) -> None:
    assert offered_languages(published) == ("auto", "chinese", "english")
