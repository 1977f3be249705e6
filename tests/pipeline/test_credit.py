"""Credit is granted in rounds."""

from __future__ import annotations

import asyncio

from fakes.virtual_time import run
from voxgate.pipeline.credit import CreditRounds


def rounds_of(*joins: tuple[float, str]) -> list[tuple[float, str]]:
    """Who was granted when, for (moment, name) of each `join`; rounds every 0.16 s."""
    granted: list[tuple[float, str]] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        credit, begun = CreditRounds(0.16), loop.time()
        grants = {name: (lambda name=name: granted.append((round(loop.time() - begun, 3), name))) for _, name in joins}
        for moment, name in joins:
            await asyncio.sleep(max(0.0, begun + moment - loop.time()))
            credit.join(grants[name])
        await asyncio.sleep(1)

    run(scene())
    return granted


def test_the_first_one_need_not_wait() -> None:
    assert rounds_of((0.0, "ada")) == [(0.0, "ada")]


def test_those_that_come_within_an_interval_are_granted_together() -> None:
    granted = rounds_of((0.0, "ada"), (0.05, "ada"), (0.1, "bob"), (0.15, "eve"))
    assert granted[0] == (0.0, "ada")
    assert sorted(granted[1:]) == [(0.16, "ada"), (0.16, "bob"), (0.16, "eve")]


def test_one_that_joins_twice_is_granted_once() -> None:
    assert rounds_of((0.0, "ada"), (0.05, "bob"), (0.06, "bob")) == [(0.0, "ada"), (0.16, "bob")]


def test_nothing_happens_while_nobody_wants_credit() -> None:
    assert rounds_of((0.0, "ada"), (0.9, "bob")) == [(0.0, "ada"), (0.9, "bob")]
