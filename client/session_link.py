"""The messages of a session over one connection after another (docs/protocol.md, "A lost connection").

Both sides count the messages that they receive, and keep those that they sent until the other side has confirmed them.
When a connection is lost without a close, a `SessionLink` opens another one, says how many messages it has received,
and sends again what the gateway has not. The session above it sees neither a gap nor a repetition.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from .errors import ClientError, ProtocolViolation, SessionLost
from .wire import NEW_SESSION, Wire

Opener = Callable[[str, float], Awaitable[Wire]]
"""Opens a connection that resumes the session of that name, or NEW_SESSION, within seconds.

Raises Refused, Unreachable."""

KEPT_CHARACTERS = 1 << 20
"""Characters of messages that wait to be sent or confirmed, above which `SessionLink.send` waits."""
CONFIRM_BYTES = 65_536
"""Bytes received after which they are confirmed at once; the gateway stops sending at four times as many."""
CONFIRM_S = 1.0
"""Seconds after which any received message is confirmed."""
FLUSH_S = 1.0
"""Seconds in which queued messages must be sent before the connection is closed."""
SILENCE_S = 2.0
"""Seconds without a message, while some are expected, after which the gateway is asked for one, and then given up."""
ATTEMPT_S = 3.0
"""Seconds for one attempt to connect again."""
ELSEWHERE, MAX_TRIES_ELSEWHERE, ELSEWHERE_PAUSE_S = "resume_elsewhere", 30, 0.05
"""Code of a process that does not have the session, tries to reach the one that has it, and the pause between them,
which grows by a tenth each: eight seconds in all."""
MAX_TRIES_MOVABLE = 6
"""The same tries of a client with checkpoints, which goes on at any gateway instead: 0.4 s in all."""
MOVE_S = 30.0
"""Seconds after a loss in which another gateway has to take the utterances over."""
MOVABLE_CODES = frozenset({1001, 1012})
"""Close codes of a gateway that ends or makes room, after which utterances go on at another one."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 1.0
"""Pauses between attempts: the first one, and the longest; each is twice the one before, more or less at random."""


class SessionLink:
    """Counts, confirms and keeps messages, and replaces lost connections.

    `start` follows the `session` message, whose field `resume` says whether and how the session can be resumed; without
    it, the link ends with its connection.
    """

    def __init__(self, wire: Wire, open_again: Opener, key: str | None) -> None:
        """`key` is sent in the first message of each connection; None where the handshake has it."""
        self.wire = wire
        self.expecting: Callable[[], bool] = lambda: False
        """Whether messages of the gateway are expected, so that silence means a loss."""
        self._open_again, self._key = open_again, key
        self.on_change: Callable[[bool], None] = lambda _: None
        """Called with False when the connection was lost and another one is being opened; with True when that is."""
        self.on_moved: Callable[[list[str]], Iterable[Mapping[str, Any]]] = lambda _: ()
        """Called when another gateway has begun a session, with the messages that the former one may not have
        received; returns what that session begins with."""
        self._session = ""
        self._model: str | None = None
        self._moving: asyncio.Task[None] | None = None
        self._offer: Mapping[str, Any] | None = None
        self._kept: deque[str] = deque()
        """The messages after the first `_confirmed` ones, of which `_written` went to the present connection."""
        self._kept_characters = 0
        self._confirmed = self._written = self._sent = 0
        self._received = self._received_confirmed = self._unconfirmed_bytes = 0
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._connected = True
        self._lost: Exception | None = None
        self._changed = asyncio.Event()
        """Set, and replaced, when anything changes for which a coroutine waits."""
        self._writer: asyncio.Task[None] | None = None

    def start(self, session: str, offer: Mapping[str, Any] | None, *, sent: int, model: str | None = None) -> None:
        """The session has begun, after `sent` messages of this side. `model`: of a gateway that sends checkpoints."""
        self._session, self._offer, self._model = session, offer, model
        self._received = 1
        self._confirmed = self._written = self._sent = sent
        self._writer = asyncio.create_task(self._write(), name="voxgate link writer")

    @property
    def resumable(self) -> bool:
        """Whether a lost connection is replaced."""
        return self._offer is not None

    @property
    def movable(self) -> bool:
        """Whether another gateway can take over."""
        return self._model is not None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Queues a message; waits while too many are unsent or unconfirmed. Raises the error that ended the link."""
        while self._lost is None and self._kept_characters > KEPT_CHARACTERS:
            await self._changed.wait()
        if self._lost is not None:
            raise self._lost
        self._queue(json.dumps(message))

    async def receive(self) -> str | bytes:
        """Returns the next message, over a new connection if necessary. Raises SessionLost, ProtocolViolation.

        Only one task may call it.
        """
        while True:
            wire = self.wire
            try:
                message = await self._receive_within_silence()
            except SessionLost as lost:
                if wire is self.wire:
                    await self._resume(lost)
                continue
            if wire is not self.wire:
                continue  # another gateway has taken over meanwhile, and sends it again
            self._received += 1
            self._plan_confirmation(len(message))
            if isinstance(message, bytes) or not self._is_confirmation(message):
                return message

    async def flush(self) -> None:
        """Waits until what is queued was sent, at most for `FLUSH_S`; not while the connection is lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                while self._connected and self._lost is None and self._written < self._sent:
                    await self._changed.wait()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the connection, and ends the link."""
        self.end(SessionLost(None, "closed by this side"))
        await self.wire.close(code, reason)

    def end(self, error: Exception) -> None:
        """Ends the link: calls raise `error` from now on."""
        self._lost = self._lost or error
        if self._moving is not None:
            self._moving.cancel()
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        if self._writer is not None:
            self._writer.cancel()
        self._notify()

    # Sending

    def _queue(self, text: str) -> None:
        self._kept.append(text)
        self._kept_characters += len(text)
        self._sent += 1
        self._notify()

    async def _write(self) -> None:
        """Writes queued messages to the present connection. A loss is noticed, and repaired, by `receive`."""
        while True:
            while not self._connected or self._written == self._sent:
                await self._changed.wait()
            wire, text = self.wire, self._kept[self._written - self._confirmed]
            self._written += 1
            if not self.resumable:
                self._drop_until(self._written)
            self._notify()
            with suppress(SessionLost):
                await wire.send(text)

    def _drop_until(self, messages: int) -> None:
        while self._confirmed < messages:
            self._kept_characters -= len(self._kept.popleft())
            self._confirmed += 1
        self._notify()

    # Receiving

    async def _receive_within_silence(self) -> str | bytes:
        """Raises SessionLost, also when the gateway is silent although messages are expected."""
        if not self.resumable:
            return await self.wire.receive()
        asked = False
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    return await self.wire.receive()
            except TimeoutError:
                if asked:
                    raise SessionLost(None, f"no answer for {SILENCE_S:g} s", broken=True) from None
                if asked := self.expecting():
                    self._queue(json.dumps({"type": "ping"}))

    def _is_confirmation(self, message: str) -> bool:
        """Applies a `received` message; returns whether it is one."""
        if '"received"' not in message:
            return False
        fields = json.loads(message)
        if not isinstance(fields, dict) or fields.get("type") != "received":
            return False
        self._drop_until(min(int(fields["messages"]), self._written))
        return True

    def _plan_confirmation(self, size_bytes: int) -> None:
        if not self.resumable:
            return
        self._unconfirmed_bytes += size_bytes
        if self._unconfirmed_bytes >= CONFIRM_BYTES:
            self._confirm()
        elif self._confirm_timer is None:
            self._confirm_timer = asyncio.get_running_loop().call_later(CONFIRM_S, self._confirm)

    def _confirm(self) -> None:
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
            self._confirm_timer = None
        if self._lost is None and self._connected:
            self._unconfirmed_bytes = 0
            self._queue(json.dumps({"type": "received", "messages": self._received}))

    # Resuming

    async def _resume(self, lost: SessionLost) -> None:
        """Replaces the connection. Raises `lost` when that is not possible in time."""
        offer, loop = self._offer, asyncio.get_running_loop()
        leaves = self._model is not None and lost.code in MOVABLE_CODES
        if offer is None or self._lost is not None or not (lost.broken or leaves):
            raise lost
        self._connected = False
        self.wire.abort()
        self.on_change(False)
        lost_s = loop.time()
        if not leaves and await self._resume_within(lost, float(offer["within_ms"]) / 1000):
            self.on_change(True)
            return
        if self._model is None:
            raise lost
        try:
            await self._move(lost_s + MOVE_S)
        except (ClientError, TimeoutError) as failure:
            raise lost from failure

    async def _resume_within(self, lost: SessionLost, within_s: float) -> bool:
        """Returns whether the session goes on over a new connection. Raises `lost` when nothing else can help."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        pause_s, tries_elsewhere = FIRST_PAUSE_S, 0
        most_tries = MAX_TRIES_ELSEWHERE if self._model is None else MAX_TRIES_MOVABLE
        while (left_s := deadline_s - loop.time()) > 0:
            if self._connected:  # another gateway has taken over meanwhile
                return True
            timeout_s = min(ATTEMPT_S, left_s)
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await self._attempt(timeout_s)
            except (ClientError, TimeoutError) as failure:
                if isinstance(failure, ClientError) and not failure.retryable:
                    if self._model is not None:
                        return False
                    raise lost from failure
            else:
                if answer == "resumed":
                    return True
                tries_elsewhere += 1
                if answer != ELSEWHERE or tries_elsewhere == most_tries:
                    return False
                await asyncio.sleep(ELSEWHERE_PAUSE_S * 1.1**tries_elsewhere * (0.5 + random.random()))
                continue
            await asyncio.sleep(min(pause_s * (0.5 + random.random()), max(0.0, deadline_s - loop.time())))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        return False

    async def _attempt(self, timeout_s: float) -> str:
        """Resumes over a new connection; returns "resumed" or the code of a refusal. Raises as `_open_again`."""
        assert self._offer is not None
        wire = await self._open_again(self._session, timeout_s)
        try:
            resume = {"type": "resume", "token": self._offer["token"], "received": self._received}
            await wire.send(json.dumps(resume if self._key is None else resume | {"key": self._key}))
            answer = json.loads(await wire.receive())
            if answer.get("type") != "resumed":
                wire.abort()
                return str(answer.get("code"))
            self._offer = answer["resume"]
            self._drop_until(int(answer["received"]))
            self._written = self._confirmed
        except (ValueError, KeyError, TypeError, IndexError) as error:
            wire.abort()
            raise ProtocolViolation(f"malformed answer to resume: {error!r}") from error
        except BaseException:
            wire.abort()
            raise
        self.wire, self._connected = wire, True
        self._notify()
        return "resumed"

    # Another gateway

    def leave(self) -> None:
        """Has another gateway take over in the background; the present one is read until then."""
        if self._model is not None and self._moving is None and self._lost is None:
            deadline_s = asyncio.get_running_loop().time() + MOVE_S
            self._moving = asyncio.create_task(self._leave(deadline_s), name="voxgate link move")

    async def _leave(self, deadline_s: float) -> None:
        """Moves; after a failure the present gateway finishes what it speaks."""
        with suppress(ClientError, TimeoutError):
            await self._move(deadline_s)
        self._moving = None

    async def _move(self, deadline_s: float) -> None:
        """Begins a session at another gateway with the same model, and ends the present one there.

        Raises the last failure at the deadline, and at once what another attempt meets again.
        """
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        before = self.wire
        while True:
            timeout_s = max(0.0, min(ATTEMPT_S, deadline_s - loop.time()))
            try:
                async with asyncio.timeout(timeout_s):
                    wire, session = await self._begin_elsewhere(timeout_s)
                break
            except (ClientError, TimeoutError) as failure:
                final = isinstance(failure, ClientError) and not failure.retryable
                if final or loop.time() + pause_s >= deadline_s:
                    raise
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        if self._lost is not None or self.wire is not before:  # resumed or moved meanwhile
            wire.abort()
            return
        kept, self._kept, self._kept_characters = list(self._kept), deque(), 0
        self._session, self._offer = session["session"], session["resume"]
        self._received, self._received_confirmed, self._unconfirmed_bytes = 1, 0, 0
        self._confirmed = self._written = self._sent = int(self._key is not None)
        self.wire, self._connected = wire, True
        for message in self.on_moved(kept):
            self._queue(json.dumps(message))
        self._notify()
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await before.close()
        before.abort()

    async def _begin_elsewhere(self, timeout_s: float) -> tuple[Wire, dict[str, Any]]:
        """Returns a new connection and its `session` message. Raises ClientError."""
        wire = await self._open_again(NEW_SESSION, timeout_s)
        try:
            if self._key is not None:
                await wire.send(json.dumps({"type": "auth", "key": self._key}))
            session = json.loads(await wire.receive())
            if session.get("type") != "session":
                raise SessionLost(None, f"refused: {session.get('code')}")
            if session.get("model") != self._model or not session.get("resume"):
                raise SessionLost(None, f"the model must be {self._model}, another gateway has {session.get('model')}")
        except (ValueError, AttributeError) as error:
            wire.abort()
            raise ProtocolViolation(f"malformed session message: {error!r}") from error
        except BaseException:
            wire.abort()
            raise
        return wire, session

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
