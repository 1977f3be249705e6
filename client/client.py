"""When to try again to reach a gateway."""
# TODO-DOC A client that stays: one session at a time, opened when it is needed and again when it was lost.
# TODO-DOC The whole thing in one call: text in, audio out.

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from .errors import ClientError, Refused
from .events import Audio
from .session import DEFAULT_URL, Session, connect
from .utterance import Utterance


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses that double, spread at random so that the listeners of a restarted gateway do not come back at once."""

    max_elapsed_s: float = 30
    """Give up when the next try would come later than this after the first."""
    initial_delay_s: float = 0.25
    max_delay_s: float = 8

    def delay_s(self, failure: ClientError, tries: int, elapsed_s: float, chance: float) -> float | None:
        """How long to wait after try number `tries` (from 1) failed; None to give up.

        `chance` in [0, 1) spreads the pause from half to one and a half. A gateway that said when to come back is
        not asked before.
        """
        if not failure.retryable:
            return None
        pause = min(self.initial_delay_s * 2.0 ** min(tries - 1, 30), self.max_delay_s) * (0.5 + chance)
        if isinstance(failure, Refused) and failure.retry_after_ms is not None:
            pause = max(pause, failure.retry_after_ms / 1000)
        return pause if elapsed_s + pause <= self.max_elapsed_s else None


NO_RETRY = Retry(max_elapsed_s=0)
"""The first failure is raised."""


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
        self._current: _OpenSession | None = None
        self._open_sessions: set[_OpenSession] = set()

    async def __aenter__(self) -> Self:
        """Opens nothing yet; `session` does, or the first utterance."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in tuple(self._open_sessions):
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

    async def _line(self) -> _OpenSession:
        async with self._opening:
            if self._current is None or not self._current.session.usable:
                old, self._current = self._current, None
                if old is not None and not old.utterances:
                    await self._close(old)
                self._current = await self._open()
            return self._current

    async def _open(self) -> _OpenSession:
        clock = asyncio.get_running_loop().time
        began, tries = clock(), 0
        while True:
            stack = AsyncExitStack()
            try:
                session = await stack.enter_async_context(connect(self._url, **self._options))
            except ClientError as failure:
                tries += 1
                delay_s = self._retry.delay_s(failure, tries, clock() - began, random.random())
                if delay_s is None:
                    raise
                await asyncio.sleep(delay_s)
            else:
                line = _OpenSession(session, stack)
                self._open_sessions.add(line)
                return line

    async def _close(self, line: _OpenSession) -> None:
        self._open_sessions.discard(line)
        await line.stack.aclose()


class _OpenSession:
    """A session, what closes it, and how many utterances are on it."""

    def __init__(self, session: Session, stack: AsyncExitStack) -> None:
        self.session = session
        self.stack = stack
        self.utterances = 0


async def say(
    text: str | Iterable[str] | AsyncIterable[str],
    *,
    url: str = DEFAULT_URL,
    key: str | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[Audio]:
    """Speak `text` and yield its audio while more text still arrives, for example from a language model.

    `key` and `tls` are those of `connect`, `options` those of `Session.utterance`. An error of the text's source is
    raised here. Closing the iterator stops the speech; use `contextlib.aclosing` when not iterating to the end.
    """
    fragments = [text] if isinstance(text, str) else text
    async with connect(url, key=key, tls=tls) as session, session.utterance(**options) as utterance:
        feeding = asyncio.create_task(utterance.feed(fragments), name="voxgate text")
        try:
            async for audio in utterance.audio():
                yield audio
        finally:
            feeding.cancel()
            # What went wrong with the text has ended the audio with the same error already.
            with suppress(asyncio.CancelledError, Exception):
                await feeding
