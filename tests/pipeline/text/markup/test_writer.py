"""The bounds of pauses and notices."""

from __future__ import annotations

from voxgate.pipeline.text.markup.writer import MAX_NOTICES, MAX_PAUSE_MS, MAX_SILENCE_MS, MarkupWriter, Pause


def test_long_pause_is_shortened_with_a_notice() -> None:
    out = MarkupWriter()
    out.pause(MAX_PAUSE_MS, 0, 1)
    assert out.take_notices() == ()
    out.pause(MAX_PAUSE_MS + 1, 1, 2)
    assert out.take() == [Pause(MAX_PAUSE_MS, 0)] * 2
    (notice,) = out.take_notices()
    assert "at most 10 s" in notice


def test_silence_of_an_utterance_is_bounded() -> None:
    out = MarkupWriter()
    for _ in range(100):
        out.pause(MAX_PAUSE_MS, 0, 1)
    pauses = [piece.ms for piece in out.take() if isinstance(piece, Pause)]
    assert sum(pauses) == MAX_SILENCE_MS
    assert out.pauses == len(pauses)


def test_pause_of_no_length_separates_words() -> None:
    out = MarkupWriter()
    out.copy("a", 0)
    out.pause(0, 1, 2)
    out.pause(0, 2, 3)
    out.copy("b", 3)
    assert out.take() == ["a b"]
    assert out.pauses == 0


def test_each_notice_is_given_once() -> None:
    out = MarkupWriter()
    out.ignore("x")
    out.ignore("x")
    assert len(out.take_notices()) == 1
    out.ignore("x")
    assert out.take_notices() == ()


def test_notices_are_bounded() -> None:
    out = MarkupWriter()
    for number in range(100):
        out.ignore(f"element {number}")
    assert len(out.take_notices()) == MAX_NOTICES
