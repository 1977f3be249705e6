"""Which text asks for a talker slot."""

from __future__ import annotations

import pytest
from voxgate.gateway.messages.start_fields import DEFAULT_MARKUP
from voxgate.gateway.session.slots.speakable import EXAMINED_CHARACTERS, SpeakableText


@pytest.mark.parametrize(
    "text",
    ['<emotion value="happy"/>', "<think>hm", "<b>", "...", " \n", r"\{pause:1s\}", "<|im_start|>", "](", "&nbsp;"],
)
def test_markup_is_not_speakable_however_it_is_cut(text: str) -> None:
    speakable = SpeakableText(DEFAULT_MARKUP)
    assert not any(map(speakable.push, text))
    assert not SpeakableText(DEFAULT_MARKUP).push(text)


@pytest.mark.parametrize("text", ["a", "x <3", "<b>word", "**1**", '<break time="1s"/> yes', "<think>hm</think>So"])
def test_text_between_markup_is_speakable(text: str) -> None:
    speakable = SpeakableText(DEFAULT_MARKUP)
    assert any(map(speakable.push, text + " "))
    assert SpeakableText(DEFAULT_MARKUP).push(text + " ")


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        *[("", False), (" ", False), ("<b></b>", False), ("<think>hm</think>", False), ("<|im_end|>", False)],
        *[("...", True), ('<break time="1s"/>', True), ("<b", True)],
    ],
)
def test_complete_text_of_marks_or_pauses_may_be_speakable(text: str, complete: bool) -> None:
    speakable = SpeakableText(DEFAULT_MARKUP)
    speakable.push(text)
    assert speakable.complete() is complete


def test_long_fragment_is_examined_in_part() -> None:
    assert SpeakableText(DEFAULT_MARKUP).push("<b>" * EXAMINED_CHARACTERS)
