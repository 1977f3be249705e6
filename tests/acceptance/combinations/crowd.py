"""Clients that want slots for longer than a step: a `Crowd` takes all that it gets, an `Insistent` one needs one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from typing import TYPE_CHECKING

from .hostile_input import PEER_KEY
from .peers import Listener

if TYPE_CHECKING:
    from .world import World

CROWD_ADDRESS = "127.0.0.4"
STARTS_PER_S = 4.0
"""Most requests of a socket: the gateway allows it five."""
RECONNECT_S = 1.0
RETRY_S = 0.5
"""Shortest time between two requests of an insistent client; it asks again at once when it has waited longer."""


class Crowd:
    """One caller that keeps `utterances` on each of `sockets` sockets, and asks again as soon as one of them ends."""

    def __init__(
        self, sockets: int, utterances: int, text: str, *, ended: bool, trickle_s: float | None = None
    ) -> None:
        """`ended`: whether the texts have an end; others wait for more text.

        That never comes, or, with `trickle_s`, letter by letter, one in so many seconds.
        """
        self._sockets, self._utterances, self._text, self._ended = sockets, utterances, text, ended
        self._trickle_s = trickle_s
        self._tasks: list[asyncio.Task[None]] = []
        self._leave: asyncio.Future[None]

    def start(self, world: World) -> None:
        """Begins to ask."""
        self._leave = world.loop.create_future()
        self._tasks = [world.loop.create_task(self._crowd(world)) for _ in range(self._sockets)]

    async def stop(self) -> None:
        """Leaves."""
        self._leave.set_result(None)
        await asyncio.wait(self._tasks)

    async def _crowd(self, world: World) -> None:
        headers = (f"Authorization: Bearer {PEER_KEY}",) if world.setup.keys else ()
        while not self._leave.done():
            with contextlib.suppress(OSError):  # the gateway does not listen any more
                client = await world.connect_listener(headers, CROWD_ADDRESS)
                if client.answered.result() == 101:
                    await self._ask(client)
                client.abort()
            await asyncio.wait([self._leave], timeout=RECONNECT_S)

    async def _ask(self, client: Listener) -> None:
        """Keeps the utterances of one socket until it is closed."""
        numbers = itertools.count()
        asking = [asyncio.ensure_future(self._repeat(client, numbers)) for _ in range(self._utterances)]
        await asyncio.wait([client.closed, self._leave], return_when=asyncio.FIRST_COMPLETED)
        for each in asking:
            each.cancel()

    async def _repeat(self, client: Listener, numbers: itertools.count[int]) -> None:
        while not client.closed.done():
            name = f"c{next(numbers)}"
            received = client.say(self._text, name=name, end=self._ended)
            while self._trickle_s is not None and not (received.over.done() or client.closed.done()):
                await asyncio.wait([received.over], timeout=self._trickle_s)
                client.send(type="text", utterance=name, text="a")
            await asyncio.wait([received.over])
            await asyncio.sleep(self._utterances / STARTS_PER_S)


class Insistent:
    """A client that keeps the rules and asks for one utterance again and again until it is let in."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.waited_s = math.inf
        """From its first request until it was let in; infinity when it was not."""
        self.refusals = 0
        self.task: asyncio.Task[None]

    def start(self, world: World) -> None:
        """Begins to ask."""
        self.task = world.loop.create_task(self._insist(world))

    async def _insist(self, world: World) -> None:
        asked_s = world.loop.time()
        while "drain" not in world.happened:
            # Where all sockets are in use, one without speech may be closed: this client's, while it does not ask.
            if (listener := await world.present_listener()) is None:
                await asyncio.sleep(RETRY_S)
                continue
            received = world.say(listener, self.text)
            await asyncio.wait([received.over])
            if received.started_s is not None:
                self.waited_s = received.started_s - asked_s
                return
            if received.outcome == "at_capacity":
                self.refusals += 1
            elif not (received.outcome == "lost" and received.may_be_lost):
                return
            await asyncio.sleep(max(0.0, received.asked_s + RETRY_S - world.loop.time()))
