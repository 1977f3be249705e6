"""Work of a turn of the event loop is bounded, callers take turns, and what waits for nothing costs nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from fakes.virtual_time import run
from voxgate.gateway.transport.turn_budget import TurnBudget

UNITS = 16


def test_callers_that_wait_take_turns() -> None:
    """A caller with one connection does not wait for the hundred of another."""

    async def scene() -> None:
        budget, parsed = TurnBudget(UNITS), list[str]()
        assert budget.take(UNITS)
        for caller in ["alice"] * 100 + ["bob"] + ["alice"]:
            assert not budget.take(UNITS)
            budget.wait(UNITS, partial(parsed.append, caller), caller)
        while len(parsed) < 102:
            await asyncio.sleep(0)
        assert parsed.index("bob") == 1
        assert parsed.count("alice") == 101

    run(scene())


def test_tasks_of_all_callers_enter_in_many_turns_and_by_turns() -> None:
    async def scene() -> None:
        budget, entered, turn = TurnBudget(UNITS), list[tuple[int, str]](), 0

        async def work(caller: str) -> None:
            await budget.enter(caller, 1)
            entered.append((turn, caller))

        tasks = [asyncio.create_task(work(caller)) for caller in ["alice"] * 500 + ["bob"] * 5]
        while len(entered) < len(tasks):
            turn += 1
            await asyncio.sleep(0)
        assert max(Counter(number for number, _ in entered).values()) <= 2 * UNITS
        assert [caller for _, caller in entered].index("bob") <= UNITS + 1
        await asyncio.gather(*tasks)

    run(scene())


def test_cancelled_task_leaves_the_others_their_turns() -> None:
    async def scene() -> None:
        budget = TurnBudget(1)
        assert budget.take(1)
        tasks = [asyncio.create_task(budget.enter("alice", 1)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        done, _ = await asyncio.wait(tasks, timeout=1)
        assert len(done) == len(tasks)
        assert [task.cancelled() for task in tasks] == [False, True, False]

    run(scene())
