"""Turns one after another: what is given to an utterance, and when."""

from __future__ import annotations

import pytest
from voxgate.gateway.errors import RateLimited
from voxgate.gateway.messages import End, Start, Text
from voxgate.gateway.protocols.turn_queue import MAX_HELD_CHARACTERS, MAX_WAITING_TURNS, TurnQueue
from voxgate.pipeline.errors import TextTooLong


def row() -> TurnQueue:
    return TurnQueue(lambda name: Start(type="start", utterance=name))


def text(name: str, words: str) -> Text:
    return Text(type="text", utterance=name, text=words)


def test_the_first_turn_speaks_at_once_and_the_next_waits() -> None:
    turns = row()
    assert [*turns.speak("one ")] == [Start(type="start", utterance="turn-1"), text("turn-1", "one ")]
    assert [*turns.speak("two")] == [text("turn-1", "two")]
    assert [*turns.complete()] == [End(type="end", utterance="turn-1")]
    assert not turns.finished
    assert [*turns.speak("la"), *turns.speak("ter")] == []
    assert [*turns.next()] == []
    assert turns.next_wake_s() > 0
    turns.live = None
    assert turns.next_wake_s() < 0
    assert [*turns.next()] == [Start(type="start", utterance="turn-2"), text("turn-2", "later")]
    assert turns.open_turn is turns.live


def test_blanks_alone_ask_for_no_utterance() -> None:
    turns = row()
    assert [*turns.speak(" "), *turns.speak("\n")] == []
    assert [*turns.speak("x")][1] == text("turn-1", " \nx")
    turns = row()
    assert [*turns.speak(" "), *turns.complete()] == []
    assert turns.finished


def test_blanks_before_a_turn_are_bounded() -> None:
    turns = row()
    for _ in range(3):
        [*turns.speak(" " * MAX_HELD_CHARACTERS)]
    assert turns.live is not None
    assert len(turns.live.held) == MAX_HELD_CHARACTERS
    assert [*turns.speak("x")] == [
        Start(type="start", utterance="turn-1"),
        text("turn-1", " " * MAX_HELD_CHARACTERS + "x"),
    ]


def test_what_waits_is_bounded() -> None:
    turns = row()
    [*turns.speak("x" * (MAX_HELD_CHARACTERS + 1)), *turns.complete()]
    [*turns.speak("y" * MAX_HELD_CHARACTERS)]
    with pytest.raises(TextTooLong):
        [*turns.speak("z")]
    [*turns.complete()]
    with pytest.raises(TextTooLong):
        [*turns.speak("z")]
    for _ in range(MAX_WAITING_TURNS - 1):
        [*turns.complete()]
    with pytest.raises(RateLimited):
        [*turns.complete()]
    turns.live = None
    [*turns.next()]
    assert [*turns.speak("z")] == [], "there is room again"


def test_an_utterance_that_is_over_takes_in_the_rest_of_its_text() -> None:
    turns = row()
    [*turns.speak("x")]
    assert turns.live is not None
    turns.live.over = True
    assert [*turns.speak("more")] == []
    assert not turns.finished
    assert [*turns.complete()] == []
    assert turns.finished
