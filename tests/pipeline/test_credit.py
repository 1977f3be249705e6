"""Rounds of granting credit, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fakes.virtual_time import run
from voxgate.pipeline.credit import GPU_GROUPS, INTERVAL_S, StaggeredCredit


def ordinary() -> StaggeredCredit:
    return StaggeredCredit("cpu")


def rounds_of(
    *joins: tuple[float, str], at: Callable[[], StaggeredCredit] = ordinary, paced: bool = True
) -> list[tuple[float, str]]:
    """Returns the grants as (time, names) for joins of (time, name); speeches begin in the order of first joins."""
    granted: list[tuple[float, str]] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        rounds, begun = at(), loop.time()
        credit = {name: rounds.next(paced=paced) for name in dict.fromkeys(name for _, name in joins)}
        grants = {name: (lambda name=name: granted.append((round(loop.time() - begun, 3), name))) for _, name in joins}
        for moment, name in joins:
            await asyncio.sleep(max(0.0, begun + moment - loop.time()))
            credit[name].join(grants[name])
        await asyncio.sleep(1)

    run(scene())
    return granted


def test_first_grant_does_not_wait() -> None:
    assert rounds_of((0.0, "ada")) == [(0.0, "ada")]


def test_joins_within_an_interval_are_granted_together() -> None:
    granted = rounds_of((0.0, "ada"), (0.05, "ada"), (0.1, "bob"), (0.15, "eve"))
    assert granted[0] == (0.0, "ada")
    assert sorted(granted[1:]) == [(0.16, "ada"), (0.16, "bob"), (0.16, "eve")]


def test_joining_twice_grants_once() -> None:
    assert rounds_of((0.0, "ada"), (0.05, "bob"), (0.06, "bob")) == [(0.0, "ada"), (0.16, "bob")]


def test_no_round_runs_without_joins() -> None:
    assert rounds_of((0.0, "ada"), (0.9, "bob")) == [(0.0, "ada"), (0.9, "bob")]


def test_gpu_speeches_have_staggered_rounds() -> None:
    names = ("ada", "bob", "cyd", "dan", "eve")
    granted = rounds_of(*((0.0, name) for name in names), at=partial(StaggeredCredit, "cuda"))
    moments = {name: moment for moment, name in granted}
    # Virtual time begins at a multiple of the interval, or just after one.
    assert moments["ada"] == moments["eve"]
    apart_s = INTERVAL_S / GPU_GROUPS
    others = sorted(moments[name] for name in ("ada", "bob", "cyd", "dan"))
    assert [round(moment - others[0], 3) for moment in others] == [round(n * apart_s, 3) for n in range(GPU_GROUPS)]


def test_gpu_unpaced_speeches_share_rounds() -> None:
    names = ("ada", "bob", "cyd", "dan", "eve")
    granted = rounds_of(*((0.0, name) for name in names), at=partial(StaggeredCredit, "cuda"), paced=False)
    assert sorted(name for _, name in granted) == sorted(names)
    assert len({moment for moment, _ in granted}) == 1


def test_rounds_of_processes_coincide() -> None:
    granted: list[tuple[float, str]] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        one, other = StaggeredCredit("cuda", aligned=True), StaggeredCredit("cuda", aligned=True)
        await asyncio.sleep(0.05)
        one.next(paced=True).join(lambda: granted.append((loop.time(), "one")))
        await asyncio.sleep(0.03)
        other.next(paced=True).join(lambda: granted.append((loop.time(), "other")))
        await asyncio.sleep(1)

    run(scene())
    assert [name for _, name in granted] == ["one", "other"]
    assert round(granted[0][0] - granted[1][0], 6) == 0
