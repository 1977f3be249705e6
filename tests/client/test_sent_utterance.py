"""What a client keeps of an utterance, also when its text is taken back."""

from __future__ import annotations

from typing import Any

from voxgate.client import Retracted
from voxgate.client.sent_utterance import SentUtterance

STARTED = {"voice": "ada", "language": "auto", "seed": 3}


def sent(*messages: tuple[str, Any]) -> SentUtterance:
    """Messages by type, with a text or a number of characters."""
    utterance = SentUtterance({"type": "start", "utterance": "u"})
    utterance.parts.append("part")
    for number, (kind, value) in enumerate(messages):
        fields = {"text": value} if kind == "text" else {"characters": value} if kind == "retract" else {}
        utterance.record({"type": kind, "utterance": "u", "id": f"{kind}-{number}", **fields})
    return utterance


def again(utterance: SentUtterance) -> list[tuple[str, Any]]:
    """What another gateway is sent behind the first message."""
    first, *messages = utterance.messages(None, 0, last=False)
    assert first["type"] == "start"
    return [(each["type"], each.get("text", each.get("characters"))) for each in messages]


def answer(characters: int, flush_at: int | None = None, void_from: int = 0) -> Retracted:
    return Retracted(characters, "", void_from, flush_at)


def test_a_retraction_without_an_answer_is_sent_again_in_its_place() -> None:
    utterance = sent(
        ("text", "one "), ("text", "two"), ("end", None), ("retract", 2), ("text", "three"), ("flush", None)
    )
    assert again(utterance) == [("text", "one two"), ("end", None), ("retract", 2), ("text", "three"), ("flush", None)]
    utterance.record({"type": "end", "id": "end-9"})
    assert again(utterance)[-1] == ("end", None)


def test_a_refused_retraction_leaves_the_text_as_it_was() -> None:
    utterance = sent(("text", "one "), ("end", None), ("retract", 2))
    utterance.forget("retract-2")
    assert again(utterance) == [("text", "one "), ("end", None)]


def test_the_answer_says_what_is_left_and_where_it_is_flushed() -> None:
    pieces = ("text", "one "), ("flush", None), ("text", "two "), ("text", "three "), ("flush", None), ("end", None)
    utterance = sent(*pieces, ("retract", 0), ("text", "four"))
    utterance.retracted(answer(10, 8))
    assert again(utterance) == [
        ("text", "one "),
        ("flush", None),
        ("text", "two "),
        ("flush", None),
        ("text", "thfour"),
    ]
    assert utterance.parts == []


def test_the_answer_has_the_parts_that_take_the_place_of_those_before() -> None:
    utterance = sent(("text", "one two three"), ("retract", 0))
    utterance.parts += ["old head", "old codes"]
    utterance.retracted(Retracted(4, "two three", 4, 4, 1920, 80, checkpoint=("head", "codes")))
    assert next(utterance.messages(STARTED, 3, last=False))["checkpoint"] == ["head", "codes"]


def test_a_cut_may_lie_within_a_message() -> None:
    utterance = sent(("text", "one two three"), ("retract", 0))
    utterance.retracted(answer(4, 4))
    assert again(utterance) == [("text", "one "), ("flush", None)]
    utterance = sent(("text", "one two three"), ("retract", 0), ("text", "x"))
    utterance.retracted(answer(0))
    assert again(utterance) == [("text", "x")]


def test_answers_come_in_the_order_of_the_retractions() -> None:
    utterance = sent(("text", "one two"), ("retract", 0), ("text", "three"), ("retract", 5), ("text", "four"))
    utterance.retracted(answer(4, 4))
    assert again(utterance) == [("text", "one "), ("flush", None), ("text", "three"), ("retract", 5), ("text", "four")]
    utterance.retracted(answer(5))
    assert again(utterance) == [("text", "one "), ("flush", None), ("text", "tfour")]


def test_words_and_shapes_that_are_void_do_not_count() -> None:
    utterance = sent(("text", "one two three"), ("retract", 0))
    utterance.words, utterance.visemes = [(0, 90), (4, 300), (8, 420)], [0, 80, 400]
    utterance.retracted(Retracted(4, "two three", 4, 4, 1920, 80))
    utterance.parts.append("part")
    restore = next(utterance.messages(STARTED, 3, last=False))
    assert restore["received"] == {"messages": 3, "last": False, "words": 1, "words_end_ms": 80, "visemes": 1}
    assert restore["characters"] == 4


def test_an_utterance_of_which_nothing_was_received_begins_anew_with_its_seed() -> None:
    utterance = sent(("text", "Hello."))
    utterance.parts.clear()
    first, text = utterance.messages(STARTED, 0, last=False)
    assert first == {"type": "start", "utterance": "u", **STARTED}
    assert text["text"] == "Hello."
