"""A client that stays: one session at a time, opened when it is needed and again when it was lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from .errors import ClientError
from .retry import Retry
from .session import DEFAULT_URL, Session, connect
from .utterance import Utterance


class Client:
    """For an agent that speaks for hours: `async with Client(url) as client, client.utterance() as utterance`.

    An utterance under way when its socket is lost ends with SessionLost and is not spoken again by itself: part of it
    may have been heard. The next one opens a new session. A gateway that announced its shutdown gets no new utterances.
    """

    def __init__(self, url: str = DEFAULT_URL, *, retry: Retry | None = None, **options: Any) -> None:
        """`options` are those of `connect`: `key`, `headers`, `tls`, `open_timeout_s`."""
        self._url = url
        self._options = options
        self._retry = retry or Retry()
        self._opening = asyncio.Lock()
        self._current: _Line | None = None
        self._lines: set[_Line] = set()

    async def __aenter__(self) -> Self:
        """Opens nothing yet; `session` does, or the first utterance."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in tuple(self._lines):
            await self._close(line)

    async def session(self) -> Session:
        """The session for the next utterance, opened if there is none that can be used.

        Raises what `connect` raises, once the retries are used up. Call it ahead of time to save the first
        utterance the handshake.
        """
        return (await self._line()).session

    @asynccontextmanager
    async def utterance(self, **options: Any) -> AsyncIterator[Utterance]:
        """As `Session.utterance`, with its options, on a session that is open."""
        line = await self._line()
        line.utterances += 1
        try:
            async with line.session.utterance(**options) as utterance:
                yield utterance
        finally:
            line.utterances -= 1
            if line is not self._current and not line.utterances:
                await self._close(line)

    async def _line(self) -> _Line:
        async with self._opening:
            if self._current is None or not self._current.session.usable:
                old, self._current = self._current, None
                if old is not None and not old.utterances:
                    await self._close(old)
                self._current = await self._open()
            return self._current

    async def _open(self) -> _Line:
        clock = asyncio.get_running_loop().time
        began, tries = clock(), 0
        while True:
            stack = AsyncExitStack()
            try:
                session = await stack.enter_async_context(connect(self._url, **self._options))
            except ClientError as failure:
                tries += 1
                pause_s = self._retry.pause_s(failure, tries, clock() - began, random.random())
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
            else:
                line = _Line(session, stack)
                self._lines.add(line)
                return line

    async def _close(self, line: _Line) -> None:
        self._lines.discard(line)
        await line.stack.aclose()


class _Line:
    """A session, what closes it, and how many utterances are on it."""

    def __init__(self, session: Session, stack: AsyncExitStack) -> None:
        self.session = session
        self.stack = stack
        self.utterances = 0
