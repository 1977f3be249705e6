"""Which served voice speaks for a stock voice of another service."""

from __future__ import annotations

import logging

import pytest
from voxgate.gateway.session.lookup.stock_voices import StockVoice, StockVoices, describe
from voxgate.pipeline.checkpoint.published_speakers import PUBLISHED_SPEAKERS
from voxgate.pipeline.interface import VoiceInfo

ENGLISH = ("auto", "english")


def voice(name: str, gender: str = "", accent: str = "", languages: tuple[str, ...] = ENGLISH) -> VoiceInfo:
    return VoiceInfo(name, languages, gender=gender, accent=accent)


def named(*voices: VoiceInfo) -> dict[str, VoiceInfo]:
    return {each.name: each for each in voices}


DEMO = named(
    voice("heart", "female", "american"),
    voice("michael", "male", "american"),
    voice("emma", "female", "british"),
    voice("george", "male", "british"),
)
LANGUAGES = ("auto", "chinese", "english", "french", "german", "italian", "japanese", "spanish")
PUBLISHED = named(*(voice(n, entry.gender, entry.accent, LANGUAGES) for n, entry in PUBLISHED_SPEAKERS.items()))


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("alloy", "heart"),
        ("ONYX", "michael"),
        ("fable", "george"),
        ("21m00Tcm4TlvDq8ikWAM", "heart"),
        ("JBFqnCBsd6RMkjVDRZzb", "george"),
        ("Xb7hH8MSUJpSbSDYk0k2", "emma"),
        ("aura-2-thalia-en", "heart"),
        ("aura-asteria-en", "heart"),
        ("aura-2-apollo-en", "michael"),
        ("aura-2-pandora-en", "emma"),
        ("aura-angus-en", "george"),
        ("f786b574-daa5-4673-aa0c-cbe3e8534c02", "heart"),
        ("a0e99841-438c-4a64-b679-ae501e7d6091", "michael"),
    ],
)
def test_gender_and_accent_are_those_of_the_stock_voice(name: str, chosen: str) -> None:
    assert StockVoices().choose(name, DEMO, "heart") == chosen


@pytest.mark.parametrize("name", ["eve", "", "aura-2-thalia", "aura-2-thalia-xx", "aura-2-celeste-es", "x" * 10_000])
def test_other_names_and_languages_that_no_voice_speaks_have_no_voice(name: str) -> None:
    assert StockVoices().choose(name, DEMO, "heart") is None


def test_a_voice_of_the_right_gender_speaks_the_language() -> None:
    assert PUBLISHED_SPEAKERS[StockVoices().choose("aura-2-celeste-es", PUBLISHED, "vivian") or ""].gender == "female"
    assert StockVoices().choose("onyx", PUBLISHED, "vivian") in ("aiden", "ryan")


def test_names_divide_between_equally_near_voices_and_stay_where_they_are() -> None:
    def choices(voices: dict[str, VoiceInfo]) -> dict[str, str | None]:
        names = ("alloy", "coral", "marin", "nova", "sage", "shimmer", "EXAVITQu4vr4xnSDxMaL", "aura-2-thalia-en")
        return {name: StockVoices().choose(name, voices, "vivian") for name in names}

    before = choices(PUBLISHED)
    assert len(set(before.values())) > 1
    assert choices(dict(reversed(PUBLISHED.items()))) == before
    after = choices(PUBLISHED | named(voice("new", "female", "chinese", LANGUAGES)))
    assert all(after[name] in (before[name], "new") for name in before)


def test_default_voice_speaks_where_no_gender_is_known() -> None:
    cloned = named(voice("eve"), voice("max"))
    assert StockVoices().choose("onyx", cloned, "MAX") == "max"
    assert StockVoices().choose("onyx", cloned, "") == "eve"
    assert StockVoices().choose("onyx", {}, "max") is None


def test_voice_that_needs_instructions_speaks_for_none() -> None:
    designed = VoiceInfo("designed", ENGLISH, instructions=True, needs_instructions=True)
    assert StockVoices().choose("alloy", {"designed": designed}, "designed") is None


def test_each_choice_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stock = StockVoices()
    for name in ("alloy", "ALLOY", "alloy", *(f"aura-2-q{chr(97 + n // 26)}{chr(97 + n % 26)}-en" for n in range(400))):
        assert stock.choose(name, DEMO, "heart")
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0].startswith("the stock voice alloy is spoken by heart")
    assert sum("alloy" in message for message in messages) == 1
    assert len(messages) == 200, "a client can invent names of Deepgram's form"


def test_names_of_unknown_voices_of_deepgram_have_their_language() -> None:
    assert describe("aura-2-zeno-en") == StockVoice(language="english")
    assert describe("flux-alexis-en") == StockVoice(language="english")
    assert describe("aura-2-draco-en") == StockVoice("male", "british", "english")
