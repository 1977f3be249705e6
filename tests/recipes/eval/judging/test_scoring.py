"""Word errors of transcripts."""

from __future__ import annotations

import pytest
from eval.judging.scoring import Score, readings, said_twice, score


@pytest.mark.parametrize(
    ("spoken", "transcript", "errors", "kept"),
    [
        ("one two three.", "one two three", 0, 3),
        ("one two three.", "one too three", 1, 2),
        ("one two three.", "one three", 1, 2),
        ("one two three.", "one two two three", 1, 3),
        ("one two three.", "", 3, 0),
        ("one two three.", "four five six seven", 4, 0),
        ("doctor bell, at nine p m.", "doctor bell at nine pm", 0, 5),
        ("that's s a m.", "that's sam", 0, 2),
        ("my e mail", "my email", 0, 3),
        ("the u s b stick", "the u s d stick", 1, 2),
    ],
)
def test_errors_and_words_kept(spoken: str, transcript: str, errors: int, kept: int) -> None:
    found = score(spoken, transcript)
    assert (found.errors, found.kept) == (errors, kept)


def test_alignment_with_most_words_kept_is_preferred() -> None:
    # Two errors either way: two substitutions, or a deletion and an insertion.
    assert score("so no", "no go") == Score(words=2, errors=2, kept=1)


@pytest.mark.parametrize(
    ("spoken", "transcript", "twice"),
    [
        ("one two three.", "One two two three.", ("two",)),
        ("one two three four.", "One two three two three four.", ("two three",)),
        ("no, no, that is fine.", "No, no, that's fine.", ()),
        ("call five five five.", "Call 555.", ()),
        ("that is w a l l.", "That is W-A-L-L.", ()),
        ("one two three.", "One three.", ()),
    ],
)
def test_words_said_twice(spoken: str, transcript: str, twice: tuple[str, ...]) -> None:
    assert said_twice(spoken, transcript) == twice


@pytest.mark.parametrize(
    ("transcript", "text"),
    [
        (
            "It's 3.45 pm and it costs $12.50.",
            "it's three forty five p m and it costs twelve dollars and fifty cents.",
        ),
        ("The code is B47AX9.", "the code is b four seven a x nine."),
        ("Sarah.Jones at example.com.", "sarah dot jones at example dot com."),
        ("Write to john_doe@mail.net", "write to john underscore doe at mail dot net."),
        ("On May 3rd, at 9pm.", "on may third, at nine p m."),
        ("I see. Well", "i see. well."),
        ("It is 730.", "it is seven thirty."),
        ("It is 730.", "it is seven hundred thirty."),
        ("Remind me at 11.11.", "remind me at eleven eleven."),
        ("The sale begins on Nov. 23.", "the sale begins on november twenty three."),
        ("The 1,250 seats", "the one thousand two hundred fifty seats."),
    ],
)
def test_transcripts_are_compared_in_spoken_form(transcript: str, text: str) -> None:
    assert text in readings(transcript)
