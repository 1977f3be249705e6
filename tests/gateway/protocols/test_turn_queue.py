"""Turns one after another: what is given to an utterance, and when."""

from __future__ import annotations

import pytest
from voxgate.gateway.errors import RateLimited
from voxgate.gateway.messages.client import End, Start, Text
from voxgate.gateway.protocols.turn_queue import MAX_HELD_CHARACTERS, MAX_WAITING_TURNS, TurnQueue
from voxgate.pipeline.errors import TextTooLong


def turn_queue() -> TurnQueue:
    return TurnQueue(lambda name: Start(type="start", utterance=name))


def text(name: str, words: str) -> Text:
    return Text(type="text", utterance=name, text=words)


def test_first_turn_is_sent_at_once_and_the_next_waits() -> None:
    turns = turn_queue()
    assert [*turns.add_text("one ")] == [Start(type="start", utterance="turn-1"), text("turn-1", "one ")]
    assert [*turns.add_text("two")] == [text("turn-1", "two")]
    assert [*turns.complete_text()] == [End(type="end", utterance="turn-1")]
    assert not turns.live_finished
    assert [*turns.add_text("la"), *turns.add_text("ter")] == []
    assert [*turns.start_next()] == []
    assert turns.next_wake_s() > 0
    turns.live = None
    assert turns.next_wake_s() < 0
    assert [*turns.start_next()] == [Start(type="start", utterance="turn-2"), text("turn-2", "later")]
    assert turns.open_turn is turns.live


def test_blanks_alone_start_no_utterance() -> None:
    turns = turn_queue()
    assert [*turns.add_text(" "), *turns.add_text("\n")] == []
    assert [*turns.add_text("x")][1] == text("turn-1", " \nx")
    turns = turn_queue()
    assert [*turns.add_text(" "), *turns.complete_text()] == []
    assert turns.live_finished


def test_blanks_before_a_turn_are_bounded() -> None:
    turns = turn_queue()
    for _ in range(3):
        [*turns.add_text(" " * MAX_HELD_CHARACTERS)]
    assert turns.live is not None
    assert len(turns.live.held_text) == MAX_HELD_CHARACTERS
    assert [*turns.add_text("x")] == [
        Start(type="start", utterance="turn-1"),
        text("turn-1", " " * MAX_HELD_CHARACTERS + "x"),
    ]


def test_waiting_text_and_turns_are_bounded() -> None:
    turns = turn_queue()
    [*turns.add_text("x" * (MAX_HELD_CHARACTERS + 1)), *turns.complete_text()]
    [*turns.add_text("y" * MAX_HELD_CHARACTERS)]
    with pytest.raises(TextTooLong):
        [*turns.add_text("z")]
    [*turns.complete_text()]
    with pytest.raises(TextTooLong):
        [*turns.add_text("z")]
    for _ in range(MAX_WAITING_TURNS - 1):
        [*turns.complete_text()]
    with pytest.raises(RateLimited):
        [*turns.complete_text()]
    turns.live = None
    [*turns.start_next()]
    assert [*turns.add_text("z")] == [], "there is room again"


def test_ended_utterance_discards_the_rest_of_its_text() -> None:
    turns = turn_queue()
    [*turns.add_text("x")]
    assert turns.live is not None
    turns.live.ended = True
    assert [*turns.add_text("more")] == []
    assert not turns.live_finished
    assert [*turns.complete_text()] == []
    assert turns.live_finished
