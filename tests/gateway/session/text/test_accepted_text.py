from __future__ import annotations

from fakes.gateway.lone_utterance import RecordedSpeech
from voxgate.gateway.session.text.accepted_text import AcceptedText, TextMark


def text_of(*pieces: str | None) -> AcceptedText:
    text = AcceptedText()
    for piece in pieces:
        if piece is None:
            text.flush()
        else:
            text.add(piece)
    return text


def pieces(text: AcceptedText) -> list[str | None]:
    return text.pieces(TextMark(), text.end)


def test_pieces_are_the_text_between_flushes() -> None:
    text = text_of(None, "one ", "two ", None, None, "three")
    assert pieces(text) == ["one two ", None, "three"]
    assert text.pieces(TextMark(4, 0), text.end) == ["two ", None, "three"]
    assert text.pieces(TextMark(8, 0), text.end) == [None, "three"]
    assert text.pieces(TextMark(8, 1), text.end) == ["three"]
    assert text.pieces(text.end, text.end) == []


def test_text_is_taken_back_before_what_came_later() -> None:
    text = text_of("one ", None, "two ", None, "three ", None)
    asked = text.end
    text.flush()
    text.add("four ")
    text.flush()
    text.add("five")
    assert text.take_back(6, asked, 4) == "o three "
    assert str(text) == "one twfour five"
    assert pieces(text) == ["one ", None, "twfour ", None, "five"]
    assert text.length == len("one twfour five")


def test_a_cut_flushes_the_text_that_is_kept() -> None:
    text = text_of("one two three")
    assert text.take_back(10, text.end, 4) == "ree"
    text.add("four")
    assert pieces(text) == ["one ", None, "two thfour"]


def test_all_may_be_taken_back() -> None:
    text = text_of("one", None)
    assert text.take_back(0, text.end, None) == "one"
    assert pieces(text) == []
    text.add("two")
    assert pieces(text) == ["two"]


def test_offsets_follow_in_the_clients_units() -> None:
    text = AcceptedText(utf16=True)
    text.add("\U0001f600a\U0001f600b")
    assert text.offsets.of(4) == 6
    text.take_back(1, text.end, None)
    text.add("c")
    assert (text.offsets.of(1), text.offsets.of(2)) == (2, 3)


def test_the_word_at_an_offset_begins_behind_a_blank() -> None:
    text = text_of("one two three")
    assert [text.word_begin(offset) for offset in (0, 2, 3, 4, 6, 13)] == [0, 0, 0, 4, 4, 8]


def test_each_speech_gets_the_text_once() -> None:
    text, first, second = text_of("one ", None), RecordedSpeech(), RecordedSpeech()
    text.pass_to(first, text.end)
    text.add("two ")
    text.mark_passed()
    text.add("three")
    text.pass_to(first, text.end)
    assert first.calls == ["one ", "<flush>", "three"]
    text.pass_again()
    text.pass_to(second, TextMark(8, 1))
    assert second.calls == ["one ", "<flush>", "two "]
