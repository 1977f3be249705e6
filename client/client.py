"""A client that keeps sessions open and reconnects, and `say` for a single utterance."""

from __future__ import annotations

import asyncio
import math
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from .errors import ClientError, Refused
from .events import Audio
from .session import DEFAULT_URL, Session, connect
from .utterance import Utterance

LEFT = "the client was left"


async def say(
    text: str | Iterable[str] | AsyncIterable[str],
    *,
    url: str = DEFAULT_URL,
    key: str | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncGenerator[Audio, None]:
    """Speaks `text` and yields its audio; the text may still be arriving, for example from a language model.

    `key` and `tls` are those of `connect`, `options` those of `Session.utterance`. Raises their errors, SpeechError,
    and any error of the text's source. Closing or cancelling the iterator stops the speech; use `contextlib.aclosing`
    when not iterating to the end.
    """
    fragments = [text] if isinstance(text, str) else text
    async with connect(url, key=key, tls=tls) as session, session.utterance(**options) as utterance:
        feeding = asyncio.create_task(utterance.feed(fragments), name="voxgate text")
        try:
            async for audio in utterance.audio():
                yield audio
        finally:
            feeding.cancel()
            # An error of the text has already been raised by `utterance.audio`.
            with suppress(asyncio.CancelledError, Exception):
                await feeding


class Client:
    """Keeps a session open for a program that speaks many times: `async with Client(url) as client`.

    Opens further ones where all have as many utterances as the gateway allows, and closes these when they have none.
    An utterance whose connection is lost ends with SessionLost. It is not repeated automatically, because part of it
    may have been played. The next utterance opens a new session, as it does after the gateway announced its shutdown.
    """

    def __init__(self, url: str = DEFAULT_URL, *, retry: Retry | None = None, **options: Any) -> None:
        """`options` are those of `connect`: `key`, `headers`, `tls`, `open_timeout_s`."""
        self._url = url
        self._options = options
        self._retry = retry or Retry()
        self._opening = asyncio.Lock()
        self._attempt: asyncio.Timeout | None = None
        self._left = False
        self._current: _OpenSession | None = None
        self._open_sessions: set[_OpenSession] = set()

    async def __aenter__(self) -> Self:
        """Does not connect yet: `session` does, or the first utterance."""
        self._left = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.reschedule(asyncio.get_running_loop().time())
        async with self._opening:
            for opened in tuple(self._open_sessions):
                await self._close(opened)

    async def session(self) -> Session:
        """Returns the session of the next utterance, connecting if necessary.

        Calling it ahead of time saves the first utterance the handshake. Raises what `connect` raises, after the last
        retry, and ClientError once the client was left. Cancelling it abandons the attempt.
        """
        return (await self._usable_session()).session

    @asynccontextmanager
    async def utterance(self, **options: Any) -> AsyncIterator[Utterance]:
        """`Session.utterance`, with its options, on an open session; raises what `session` raises."""
        opened = await self._usable_session()
        opened.utterances += 1
        try:
            async with opened.session.utterance(**options) as utterance:
                yield utterance
        finally:
            opened.utterances -= 1
            await self._close_idle()

    async def _usable_session(self) -> _OpenSession:
        if (room := self._with_room()) is None:
            async with self._opening:
                try:
                    async with asyncio.timeout(None) as self._attempt:
                        room = await self._open()
                except TimeoutError:
                    raise ClientError(LEFT) from None
                finally:
                    self._attempt = None
        self._current = room
        return room

    def _with_room(self) -> _OpenSession | None:
        """The current session, or another one, that takes one more utterance. Raises ClientError."""
        if self._left:
            raise ClientError(LEFT)
        return next((each for each in (self._current, *self._open_sessions) if each and each.has_room), None)

    async def _close_idle(self) -> None:
        """Closes sessions without an utterance, except a usable current one."""
        if self._current is not None and not self._current.session.usable:
            self._current = None
        for opened in tuple(self._open_sessions):
            if opened is not self._current and opened.idle:
                await self._close(opened)

    async def _open(self) -> _OpenSession:
        await self._close_idle()
        clock = asyncio.get_running_loop().time
        began_s, attempts = clock(), 0
        while True:
            if (room := self._with_room()) is not None:
                return room
            stack = AsyncExitStack()
            try:
                session = await stack.enter_async_context(connect(self._url, **self._options))
            except ClientError as failure:
                attempts += 1
                delay_s = self._retry.delay_s(failure, attempts, clock() - began_s, random.random())
                if delay_s is None:
                    raise
                await asyncio.sleep(delay_s)
            else:
                opened = _OpenSession(session, stack)
                self._open_sessions.add(opened)
                return opened

    async def _close(self, opened: _OpenSession) -> None:
        self._open_sessions.discard(opened)
        await opened.stack.aclose()


class _OpenSession:
    """A session, the stack that closes it, and the number of the client's utterances on it."""

    def __init__(self, session: Session, stack: AsyncExitStack) -> None:
        self.session = session
        self.stack = stack
        self.utterances = 0
        self._limit = session.info.limits.get("utterances_per_session", math.inf)

    @property
    def idle(self) -> bool:
        return not self.utterances and not self.session.utterances

    @property
    def has_room(self) -> bool:
        # Some of those of the session may have been started on it directly.
        return self.session.usable and max(self.utterances, self.session.utterances) < self._limit


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential back-off with jitter, so that the clients of a restarted gateway do not all reconnect at once."""

    max_elapsed_s: float = 30
    """No attempt is made later than this after the first one."""
    initial_delay_s: float = 0.25
    max_delay_s: float = 8

    def delay_s(self, failure: ClientError, attempts: int, elapsed_s: float, jitter: float) -> float | None:
        """Returns the pause before the next attempt, after `attempts` (1 or more) failed; None to give up.

        `jitter`, in [0, 1), scales the pause by 0.5 to 1.5. The pause is never shorter than the one that the gateway
        asked for.
        """
        if not failure.retryable:
            return None
        delay_s = min(self.initial_delay_s * 2.0 ** min(attempts - 1, 30), self.max_delay_s) * (0.5 + jitter)
        if isinstance(failure, Refused) and failure.retry_after_ms is not None:
            delay_s = max(delay_s, failure.retry_after_ms / 1000)
        return delay_s if elapsed_s + delay_s <= self.max_elapsed_s else None


NO_RETRY = Retry(max_elapsed_s=0)
"""Raises the first failure."""
