"""Finding the most streams: the right number, in few tries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from voxgate.cli.load.search import Search


def tries(carried: Callable[[int], bool], first: int = 1, limit: int = 1024) -> tuple[int, list[int]]:
    search, tried = Search(first, limit), []
    while (streams := search.next) is not None:
        tried.append(streams)
        assert len(tried) < 40
        search.tell(carried(streams))
    return search.best, tried


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 16, 19])
def test_finds_the_last_number_that_is_carried(capacity: int) -> None:
    best, tried = tries(lambda streams: streams <= capacity)
    assert best == capacity
    assert tried[-1] == capacity, "the result is tried again"
    assert len(tried) <= 12


def test_large_numbers_are_found_to_a_twentieth() -> None:
    best, tried = tries(lambda streams: streams <= 700)
    assert 665 <= best <= 700
    assert len(tried) <= 18


def test_nothing_is_carried() -> None:
    assert tries(lambda _: False) == (0, [1])


def test_stops_at_the_limit() -> None:
    assert tries(lambda _: True, limit=6) == (6, [1, 2, 4, 6, 6])


def test_a_lucky_run_does_not_count() -> None:
    seen: list[int] = []

    def carried(streams: int) -> bool:
        seen.append(streams)
        return streams <= 8 if seen.count(streams) == 1 else streams <= 6

    best, tried = tries(carried)
    assert best == 6
    assert tried.count(8) == 2
