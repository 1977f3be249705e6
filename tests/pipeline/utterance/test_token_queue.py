from __future__ import annotations

from voxgate.pipeline.text.utterance_text import SpeechToken
from voxgate.pipeline.utterance import TokenQueue


def tokens(first: int, last: int, *, ends: int | None = None) -> list[SpeechToken]:
    """Tokens by number, `first` to `last`; a sentence ends with number `ends`."""
    return [SpeechToken(n, n, sentence_end=n == ends) for n in range(first, last + 1)]


def test_what_waits_goes_to_the_generation_and_leaves_it_open() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 3))
    assert script.next(taken=0, room=10) == ([1, 2, 3], False)
    assert script.last is not None
    assert script.last.id == 3
    assert script.next(taken=3, room=7) == ([], False)


def test_the_end_of_the_text_closes_it() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 2))
    script.ended = True
    assert script.next(taken=0, room=10) == ([1, 2], True)


def test_a_cut_closes_it_and_keeps_what_follows() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 2))
    script.cut()
    script.add(tokens(3, 3))
    assert script.next(taken=0, room=10) == ([1, 2], True)
    assert script.next(taken=0, room=10) == ([3], False)


def test_a_sentence_closes_it_once_it_has_enough() -> None:
    script = TokenQueue(4)
    script.add(tokens(1, 9, ends=2))
    assert script.next(taken=0, room=20) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], False), "two tokens are not enough"
    script.add(tokens(10, 12, ends=11))
    assert script.next(taken=9, room=11) == ([10, 11], True)
    assert script.next(taken=0, room=20) == ([12], False)


def test_a_full_slot_closes_it_and_loses_nothing() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 5))
    assert script.next(taken=0, room=3) == ([1, 2, 3], True)
    assert script.next(taken=0, room=3) == ([4, 5], False)


def test_cuts_with_no_text_before_them_begin_no_generation() -> None:
    script = TokenQueue(0)
    script.cut()
    assert len(script) == 1
    assert not script.has_text()
    assert len(script) == 0
    script.cut()
    script.add(tokens(1, 1))
    assert script.has_text()
    assert script.next(taken=0, room=3) == ([1], False)
