"""Markup of ElevenLabs, Deepgram, Cartesia and Rime, and reasoning of language models."""

# ruff: noqa: RUF001 - phonemes are the subject here.
from __future__ import annotations

from collections.abc import Callable

import pytest

Apply = Callable[..., tuple[list[str | int], tuple[str, ...]]]


def test_audio_tags_are_not_read(apply: Apply) -> None:
    runs, (notice,) = apply("[laughs] Well[sighs], [strong French accent] yes [pause]no", "elevenlabs")
    assert runs == [" Well ,  yes ", 500, "no"]
    assert "audio tag" in notice


@pytest.mark.parametrize("text", ["as in [1]", "a[i]", "[x] done", "[two\nlines]", "[" + "long " * 20 + "]"])
def test_other_brackets_stay(apply: Apply, text: str) -> None:
    assert apply(text, "elevenlabs") == ([text], ())


@pytest.mark.parametrize(
    ("control", "ms"), [(r"\{pause:1s\}", 1000), (r"\{pause:500ms\}", 500), (r"\{pause: 700 \}", 700)]
)
def test_deepgram_pause(apply: Apply, control: str, ms: int) -> None:
    assert apply(f"Wait {control} then", "deepgram") == (["Wait ", ms, " then"], ())


@pytest.mark.parametrize(
    "control", [r'\{"word": "dupilumab", "pronounce": "duːˈpɪl"\}', '{"word":"dupilumab","pronounce":"duːˈpɪl"}']
)
def test_deepgram_pronunciation_speaks_the_word(apply: Apply, control: str) -> None:
    runs, (notice,) = apply(f"Take {control} now", "deepgram")
    assert runs == ["Take dupilumab now"]
    assert "phonemes" in notice


def test_cartesia_elements(apply: Apply) -> None:
    text = '<speed ratio="1.5"/><volume ratio="0.5"/><emotion value="happy"/>Hi <spell>A1</spell><break time="1s"/>x'
    runs, notices = apply(text, "cartesia")
    assert runs == [(1.5, 0.5), "Hi A 1 ", 1000, "x"]
    assert [notice.split(" is ")[0] for notice in notices] == ["<emotion>"]


def test_cartesia_speed_and_volume_count_up_to_the_next(apply: Apply) -> None:
    text = 'a <speed ratio="1.5"/>b <volume ratio="0.5"/><speed ratio="1"/>c <speed ratio="9"/>d <speed ratio="x"/>e'
    runs, notices = apply(text, "cartesia")
    assert runs == ["a ", (1.5, 1.0), "b ", (1.0, 0.5), "c ", (2.0, 0.5), "d e"]
    assert len(notices) == 2


def test_rime_pause(apply: Apply) -> None:
    assert apply("wait, <750> are x <3", "rime") == (["wait, ", 750, " are x <3"], ())


def test_reasoning_is_dropped(apply: Apply) -> None:
    assert apply("<think>Let me <b>see</b>.\n\n</think>Four. <THINK>x</Think> Yes", "think") == (["Four.  Yes"], ())


def test_reasoning_without_an_end_is_dropped(apply: Apply) -> None:
    assert apply("Four. <think>" + "and " * 1000, "think") == (["Four. "], ())
