"""The loop of virtual time ends a test that waits for nothing, or that turns without end."""

from __future__ import annotations

import asyncio

import pytest
from fakes import virtual_time
from fakes.virtual_time import Deadlock, Livelock, run


def test_a_wait_for_what_never_happens_is_a_deadlock() -> None:
    with pytest.raises(Deadlock):
        run(asyncio.Event().wait())


def test_timers_that_take_no_time_are_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "MAX_TURNS", 1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(1e-14)

    with pytest.raises(Livelock, match="1000 turns"):
        run(spin())


def test_many_turns_that_take_time_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "MAX_TURNS", 1000)

    async def wait() -> None:
        for _ in range(3000):
            await asyncio.sleep(0.001)

    run(wait())
