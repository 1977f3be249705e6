"""What was said is less likely after, for whoever said it."""

from __future__ import annotations

from voxgate.pipeline.talker.tables import Option

from .bench import Bench


def test_what_was_said_is_less_likely_after(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    for frame in range(4):
        bench.take((0, frame, [1, 2, 3]))
    # 5 and 4 are halved once said; 3 is too then, and 2.5 is the largest.
    assert [record.codes[0] for record in bench.sent] == [1, 2, 3, 1]


def test_the_penalty_counts_only_what_the_same_owner_said(bench: Bench) -> None:
    for slot in (0, 1):
        bench.own(slot, epoch=slot + 1, tokens=9)
        bench.tables.options[slot, Option.REPETITION_PENALTY] = 2.0
    bench.take((0, 0, [1, 2]))
    bench.take((0, 1, [1, 2]), (1, 0, [1, 2]))
    assert [(record.slot, record.codes[0]) for record in bench.sent] == [(0, 1), (0, 2), (1, 1)]


def test_a_new_owner_begins_without_the_words_of_the_old(bench: Bench) -> None:
    for epoch in (1, 2):
        bench.own(0, epoch=epoch)
        bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
        bench.take((0, 0, [1, 2]))
    assert [record.codes[0] for record in bench.sent] == [1, 1]


def test_rows_of_strangers_leave_no_words_behind(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    bench.take((0, 0, [3]))
    bench.take((0, 0, [1]))
    bench.take((0, 1, [1, 2]))
    assert [record.codes[0] for record in bench.sent] == [3, 1]
