"""A listener that keeps the rules over connections that it loses: it resumes its session, and is owed its speech."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from voxgate.gateway.transport.resumption import HEARD_MESSAGES

from ..testbed.expected_audio import ReceivedUtterance
from ..testbed.raw_websocket import PATH, TEXT, frame, upgrade_request
from .peers import HOST, Listener

CONFIRM_BYTES = 65_536
"""Bytes received after which they are confirmed at once."""
CONFIRM_S = 1.0
"""Seconds after which any received message is confirmed."""
RETRY_S = 0.3
"""Pause between attempts to connect again."""
GIVE_UP_S = 9.0
"""Seconds after which no further attempt is made: the gateway keeps the session for ten."""


class LossyListener(Listener):
    """A session over one connection after the other. `closed` and `received` are those of the session.

    What it sends without a connection is sent when the session is resumed.
    """

    def __init__(self, headers: tuple[str, ...], disturbed: set[ReceivedUtterance]) -> None:
        """`headers` hold its key. Adds to `disturbed` the utterances that are under way without a connection."""
        super().__init__(upgrade_request(HOST, f"{PATH}?resume=new", headers))
        self.losing = False
        """Whether a connection is lost, and the session not resumed yet."""
        self.resumed = False
        """Whether it has been resumed."""
        self._headers, self._disturbed = headers, disturbed
        self._session = self._token = ""
        self._sent: list[bytes] = []
        """All messages: the gateway says how many of them it has received."""
        self._count = 0
        """Messages of the gateway."""
        self._audio = self._audio_confirmed = 0
        """Of these, messages with audio since the last loss, and how many of them were confirmed."""
        self._unconfirmed_bytes = 0
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None]
        self._resumed: asyncio.Future[None]

    async def lose(self, silent_s: float, pause_s: float, connect: Callable[[], Awaitable[object]]) -> None:
        """Reads nothing for `silent_s`, loses its connection, and resumes the session `pause_s` later.

        `connect` connects this object. It raises OSError when the gateway does not listen any more.
        """
        loop = asyncio.get_running_loop()
        self.losing, self._lost = True, loop.create_future()
        away = self.resumed and self._audio_confirmed < HEARD_MESSAGES  # for the gateway, since the loss before
        self._audio = self._audio_confirmed = 0
        self.transport.pause_reading()
        await asyncio.sleep(silent_s)
        self.transport.abort()
        await self._lost
        self._disturb()
        await asyncio.sleep(pause_s)
        until_s = loop.time() + GIVE_UP_S
        while self.losing and loop.time() < until_s and await self._resume(connect):
            await asyncio.sleep(RETRY_S)
        self._disturb()
        if self.losing:
            for each in self.received.values():
                each.may_be_lost = away
            self.losing = False
            super().connection_lost(None)

    async def _resume(self, connect: Callable[[], Awaitable[object]]) -> bool:
        """Connects once and resumes the session, if the gateway lets it; returns whether it still listens."""
        loop = asyncio.get_running_loop()
        self._request = upgrade_request(HOST, f"{PATH}?resume={self._session}", self._headers)
        self._buffer.clear()
        self.answered, self._lost, self._resumed = loop.create_future(), loop.create_future(), loop.create_future()
        try:
            await connect()
        except OSError:
            return False
        await asyncio.wait([self.answered])
        if self.answered.result() == 101:
            resume = {"type": "resume", "token": self._token, "received": self._count}
            self.transport.write(frame(TEXT, json.dumps(resume).encode()))
            await asyncio.wait([self._resumed, self._lost], return_when=asyncio.FIRST_COMPLETED)
        if self.losing:
            self.transport.abort()
            await self._lost
        return True

    def _disturb(self) -> None:
        self._disturbed.update(each for each in self.received.values() if not each.over.done())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.losing:
            super().connection_lost(exc)
            return
        if not self.answered.done():
            self.answered.set_result(0)
        self._lost.set_result(None)

    def send_all(self, messages: Iterable[dict[str, Any]]) -> None:
        frames = [frame(TEXT, json.dumps(message).encode()) for message in messages]
        self._sent += frames
        if not self.losing:
            self.transport.write(b"".join(frames))

    def take_audio(self, payload: bytes) -> None:
        self._audio += 1
        self._take_one(len(payload))
        super().take_audio(payload)

    def take_message(self, message: dict[str, Any]) -> None:
        if message["type"] == "resumed":
            self._token, self.losing = message["resume"]["token"], False
            self.resumed = True
            self.transport.write(b"".join(self._sent[message["received"] :]))
            self._resumed.set_result(None)
            return
        self._take_one(0)
        if message["type"] == "session":
            self._session, self._token = message["session"], message["resume"]["token"]
        super().take_message(message)

    def _take_one(self, size_bytes: int) -> None:
        self._count += 1
        self._unconfirmed_bytes += size_bytes
        if self._unconfirmed_bytes >= CONFIRM_BYTES:
            self._confirm()
        elif self._confirm_timer is None:
            self._confirm_timer = asyncio.get_running_loop().call_later(CONFIRM_S, self._confirm)

    def _confirm(self) -> None:
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        self._unconfirmed_bytes, self._confirm_timer = 0, None
        if not (self.losing or self.closed.done()):
            self._audio_confirmed = self._audio
            self.send(type="received", messages=self._count)
