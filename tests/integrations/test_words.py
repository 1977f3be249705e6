from __future__ import annotations

import pytest
from voxgate.client import SessionLost, SpeechError
from voxgate.client.events import Word
from voxgate.integrations.words import SentText, SentWord


def word(text: str, start: int, end: int, start_ms: int) -> Word:
    return Word(text, start, end, start_ms, start_ms + 100)


def test_words_have_the_punctuation_of_the_text() -> None:
    sent = SentText()
    sent.append('He said "we')
    sent.append('ll," twice.')
    spoken = [word("he", 0, 2, 0), word("said", 3, 7, 200), word("well", 9, 13, 400), word("twice", 16, 21, 700)]
    assert [each.text for each in sent.words(spoken)] == ["He", "said", '"well,"', "twice."]


def test_word_spoken_as_several_is_reported_once_at_its_beginning() -> None:
    sent = SentText()
    sent.append("It is 12% well-known.")
    assert list(sent.words([word("it", 0, 2, 0), word("is", 3, 5, 100)])) == [
        SentWord("It", 0.0, 0.1),
        SentWord("is", 0.1, 0.2),
    ]
    assert [each.text for each in sent.words([word("twelve", 6, 9, 200), word("percent", 6, 9, 300)])] == ["12%"]
    assert [each.text for each in sent.words([word("well", 10, 14, 400)])] == ["well-known."]
    assert list(sent.words([word("known", 15, 20, 500)])) == []


def test_text_is_reported_whole_however_it_was_cut() -> None:
    text = "One, two and three."
    whole = [word("one", 0, 3, 0), word("two", 5, 8, 1), word("and", 9, 12, 2), word("three", 13, 18, 3)]
    for size in range(1, len(text)):
        sent = SentText()
        for start in range(0, len(text), size):
            sent.append(text[start : start + size])
        assert " ".join(each.text for each in sent.words(whole)) == text


def test_held_words_are_taken_with_their_audio() -> None:
    sent = SentText()
    sent.append("One, two")
    sent.hold([word("one", 0, 3, 0), word("two", 5, 8, 500)])
    assert [[each.text for each in sent.take(audio_s)] for audio_s in (0.0, 0.08, 0.5, 0.58)] == [
        [],
        ["One,"],
        [],
        ["two"],
    ]


@pytest.mark.parametrize(("text", "silent"), [("...", True), ("\U0001f600 \n", True), ("\u4f60", False), ("7", False)])
def test_text_without_letters_and_digits_is_silent(text: str, silent: bool) -> None:
    sent = SentText()
    sent.append(text)
    assert sent.is_silent(SpeechError("empty_text", "")) is silent
    assert not sent.is_silent(SpeechError("at_capacity", ""))
    assert not sent.is_silent(SessionLost(None, ""))
