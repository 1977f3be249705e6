"""Work that all connections of an event loop may do in one of its turns; what exceeds it waits its turn.

Clients decide how much there is to do at once: thousands of small frames can be read in one callback, and hundreds of
connections have something to parse, to answer, to encode, or to end in the same moment. Each kind of work has a budget.
Callers whose work waits take turns, so that one with hundreds of connections does not delay the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

TURN_BYTES = 2048
"""Bytes parsed in one turn of the event loop, exceeded by less than one read: at most about 5 ms of small frames."""
TURN_STEPS = 16
"""Steps of sessions in one turn: a message handled, a chunk encoded, or an effect performed. Each takes 0.1 ms, a chunk
with Opus up to 0.3 ms. There may be twice as many after a turn in which all that waited was let in."""


class TurnBudget:
    """Work of one kind, in units such as bytes, that may be done in one turn of the event loop."""

    def __init__(self, units_per_turn: int) -> None:
        self._units_per_turn = self._left = units_per_turn
        self._waiting: dict[str, deque[tuple[int, Callable[[], None]]]] = {}
        """What waits, by caller; the order of the dict is the order of turns."""
        self._next_turn: asyncio.Handle | None = None

    def take(self, units: int) -> bool:
        """Takes `units` of this turn; takes none and returns False when they are used up, or others wait already."""
        self._schedule()
        if self._waiting or self._left <= 0:
            return False
        self._left -= units
        return True

    def wait(self, units: int, work: Callable[[], None], caller: str) -> None:
        """Calls `work` in a later turn that has units left, when it is the turn of `caller`."""
        self._schedule()
        self._waiting.setdefault(caller, deque()).append((units, work))

    def call(self, units: int, work: Callable[[], None], caller: str) -> None:
        """Calls `work`, which takes `units`: now, or as `wait` does."""
        if self.take(units):
            work()
        else:
            self.wait(units, work, caller)

    async def enter(self, caller: str, units: int) -> None:
        """Returns when a task of `caller` may do work of `units`: at once, or after the turn in which it would begin.

        Cancelling it gives the units up.
        """
        if not self.take(units):
            entered = asyncio.get_running_loop().create_future()
            self.wait(units, partial(_let_in, entered), caller)
            await entered

    def _schedule(self) -> None:
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._next_turn = None
        self._left = self._units_per_turn
        while self._waiting and self._left > 0:
            caller = next(iter(self._waiting))
            queue = self._waiting.pop(caller)
            units, work = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            self._left -= units
            self._schedule()
            work()


def _let_in(entered: asyncio.Future[None]) -> None:
    if not entered.done():
        entered.set_result(None)
