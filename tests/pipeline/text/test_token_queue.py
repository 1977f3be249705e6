from __future__ import annotations

from voxgate.pipeline.text.markup.writer import Pause
from voxgate.pipeline.text.token_queue import TokenQueue
from voxgate.pipeline.text.utterance_text import SpeechToken


def tokens(first: int, last: int, *, ends: int | None = None) -> list[SpeechToken]:
    """Returns tokens with the ids `first` to `last`; a sentence ends with token `ends`."""
    return [SpeechToken(n, n, sentence_end=n == ends) for n in range(first, last + 1)]


def test_waiting_tokens_leave_the_generation_open() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 3))
    assert script.next(taken=0, room=10) == ([1, 2, 3], False)
    assert script.last is not None
    assert script.last.id == 3
    assert script.next(taken=3, room=7) == ([], False)


def test_end_of_text_closes_the_generation() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 2))
    script.ended = True
    assert script.next(taken=0, room=10) == ([1, 2], True)


def test_cut_closes_the_generation_and_keeps_later_tokens() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 2))
    script.cut()
    script.add(tokens(3, 3))
    assert script.next(taken=0, room=10) == ([1, 2], True)
    assert script.next(taken=0, room=10) == ([3], False)


def test_sentence_end_closes_the_generation_after_the_limit() -> None:
    script = TokenQueue(4)
    script.add(tokens(1, 9, ends=2))
    assert script.next(taken=0, room=20) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], False), "two tokens are not enough"
    script.add(tokens(10, 12, ends=11))
    assert script.next(taken=9, room=11) == ([10, 11], True)
    assert script.next(taken=0, room=20) == ([12], False)


def test_full_slot_closes_the_generation_without_loss() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 5))
    assert script.next(taken=0, room=3) == ([1, 2, 3], True)
    assert script.next(taken=0, room=3) == ([4, 5], False)


def test_cuts_without_text_begin_no_generation() -> None:
    script = TokenQueue(0)
    script.cut()
    assert len(script) == 1
    assert not script.has_text()
    assert len(script) == 0
    script.cut()
    script.add(tokens(1, 1))
    assert script.has_text()
    assert script.next(taken=0, room=3) == ([1], False)


def test_pauses_are_taken_behind_the_tokens_before_them() -> None:
    script = TokenQueue(0)
    script.add(tokens(1, 2))
    first, second = Pause(100, 5), Pause(200, 5)
    script.cut(first)
    script.cut(second)
    script.add(tokens(3, 3))
    assert script.take_marks() == []
    assert script.next(taken=0, room=10) == ([1, 2], True)
    assert script.take_marks() == [first]
    assert script.has_text()
    assert script.take_marks() == [second]
