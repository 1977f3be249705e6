"""The text of the metrics, shared by requests, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from fakes.virtual_time import run
from voxgate.gateway.observability.exposition import MAX_AGE_S, CachedExposition


class Maker:
    """Takes 0.5 s for each text; fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        self.made = 0
        self._failures = failures

    async def __call__(self) -> bytes:
        self.made += 1
        number = self.made
        await asyncio.sleep(0.5)
        if number <= self._failures:
            raise ValueError(number)
        return b"%d" % number


def test_requests_at_once_share_one_text() -> None:
    async def scene() -> None:
        maker = Maker()
        exposition = CachedExposition(maker)
        first = asyncio.create_task(exposition())
        await asyncio.sleep(0.2)
        assert await asyncio.gather(*(exposition() for _ in range(50)), first) == [b"1"] * 51
        assert maker.made == 1

    run(scene())


def test_text_is_kept_for_a_second() -> None:
    async def scene() -> None:
        exposition = CachedExposition(Maker())
        assert await exposition() == b"1"
        await asyncio.sleep(MAX_AGE_S - 0.1)
        assert await exposition() == b"1"
        await asyncio.sleep(0.2)
        assert await exposition() == b"2"

    run(scene())


def test_cancelled_request_leaves_the_text_to_the_others() -> None:
    async def scene() -> None:
        maker = Maker()
        exposition = CachedExposition(maker)
        first, second = asyncio.create_task(exposition()), asyncio.create_task(exposition())
        await asyncio.sleep(0.1)
        first.cancel()
        assert await second == b"1"
        assert maker.made == 1

    run(scene())


def test_error_is_not_kept() -> None:
    async def scene() -> None:
        exposition = CachedExposition(Maker(failures=1))
        waiting = [asyncio.create_task(exposition()) for _ in range(2)]
        for task in waiting:
            with pytest.raises(ValueError, match="1"):
                await task
        assert await exposition() == b"2"

    run(scene())
