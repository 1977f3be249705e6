from __future__ import annotations

import math

from voxgate.gateway.session.retraction.told import ShapesInOrder, TimesInOrder, Told, ToldTimes
from voxgate.gateway.session.text.text_offsets import TextOffsets
from voxgate.pipeline.interface import VisemeTime, WordTime


def report(told: Told, *begins: int) -> list[int]:
    return told.unknown(begins, lambda begin: begin)


def test_items_are_told_once() -> None:
    told = Told()
    assert report(told, 0, 4) == [0, 4]
    assert report(told, 8) == [8]


def test_items_that_the_client_has_from_elsewhere_are_not_told_again() -> None:
    told = Told()
    told.restore(2)
    assert report(told, 0) == []
    assert report(told, 4, 8) == [8]


def test_another_speech_tells_what_is_behind_the_cut() -> None:
    told = Told()
    report(told, 0, 4, 8, 12)
    told.rewind(8)
    assert report(told, 0, 4) == []
    assert report(told, 9, 13, 17) == [9, 13, 17]


def test_items_before_the_cut_that_were_not_told_are_told() -> None:
    told = Told()
    report(told, 0, 4)
    told.rewind(20)
    assert report(told, 0, 4, 8) == [8]


def test_a_second_cut_before_the_first_was_reached_again_does_not_bring_void_items_back() -> None:
    told = Told()
    report(told, 0, 4, 8, 12)
    told.rewind(8)
    assert report(told, 0) == []
    told.rewind(12)
    assert report(told, 0, 4, 9, 11) == [9, 11]


def test_without_a_cut_all_that_was_told_counts() -> None:
    told = Told()
    report(told, 0, 4)
    told.rewind(math.inf)
    assert report(told, 0, 4, 8) == [8]


def test_times_stay_in_order() -> None:
    times = TimesInOrder()
    times.place(WordTime("one", 0, 3, 0, 400))
    times.place(WordTime("two", 4, 7, 400, 900))
    times.rewind(4, 480)
    placed = times.place(WordTime("three", 4, 9, 380, 390))
    assert (placed.start_ms, placed.end_ms) == (400, 400)
    times.rewind(4, 360)
    placed = times.place(WordTime("three", 4, 9, 380, 390))
    assert (placed.start_ms, placed.end_ms) == (380, 390)
    assert times.place(WordTime("four", 10, 14, 500, 600)) == WordTime("four", 10, 14, 500, 600)


def test_a_shape_that_holds_at_the_cut_is_not_told_again() -> None:
    shapes = ShapesInOrder()
    open_mouth, closed, again = VisemeTime("aa", 0), VisemeTime("sil", 80), VisemeTime("sil", 160)
    assert shapes.place([open_mouth, closed, VisemeTime("E", 240)])
    shapes.rewind(160)
    assert shapes.place([again, VisemeTime("O", 240)]) == [VisemeTime("O", 240)]
    shapes.rewind(80)
    assert shapes.place([again]) == [again]


def test_times_follow_those_from_elsewhere() -> None:
    times = TimesInOrder()
    times.restore(500)
    assert times.place(WordTime("two", 4, 7, 400, 900)) == WordTime("two", 4, 7, 500, 900)
    times.rewind(4, 460)
    assert times.place(WordTime("three", 4, 9, 400, 480)) == WordTime("three", 4, 9, 460, 480)


def test_messages_name_what_is_new_in_the_units_of_the_client() -> None:
    told, offsets = ToldTimes("a"), TextOffsets(utf16=True)
    offsets.add("\U0001f600 one two")
    one, two = WordTime("one", 2, 5, 0, 400), WordTime("two", 6, 9, 400, 900)
    first = told.words_message([one], offsets)
    assert first is not None
    assert (first.utterance, [(word.start, word.end) for word in first.words]) == ("a", [(3, 6)])
    told.rewind(6, math.inf)
    assert told.words_message([one], offsets) is None
    assert told.words_message([two], offsets) is not None


def test_words_and_shapes_from_elsewhere_count_apart() -> None:
    told, shape = ToldTimes("a"), VisemeTime("aa", 0)
    told.restore(0, 0, 1)
    assert told.visemes_message([shape]) is None
    assert told.words_message([WordTime("one", 0, 3, 0, 400)], TextOffsets(utf16=False)) is not None
    told.rewind(3, 0)
    assert told.visemes_message([shape]) is not None
