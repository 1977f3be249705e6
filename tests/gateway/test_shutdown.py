"""Waiting for the first of several events."""

from __future__ import annotations

import asyncio

import pytest
from fakes.virtual_time import run
from voxgate.gateway.shutdown import run_until_first


def test_first_to_end_cancels_the_others() -> None:
    async def scene() -> None:
        ended: list[str] = []

        async def wait(name: str, time_s: float) -> None:
            try:
                await asyncio.sleep(time_s)
                ended.append(f"{name} ended")
            except asyncio.CancelledError:
                ended.append(f"{name} cancelled")
                raise

        await run_until_first(wait("a", 3.0), wait("b", 1.0), wait("c", 2.0))
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)
        await asyncio.sleep(0)
        assert ended == ["b ended", "a cancelled", "c cancelled"]

    run(scene())


def test_error_of_the_first_to_end_is_raised() -> None:
    async def fail() -> None:
        raise OSError("failed")

    async def scene() -> None:
        with pytest.raises(OSError, match="failed"):
            await run_until_first(asyncio.Event().wait(), fail())

    run(scene())


def test_cancelling_cancels_all() -> None:
    async def scene() -> None:
        waiting = asyncio.create_task(run_until_first(asyncio.Event().wait(), asyncio.Event().wait()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scene())
