"""OpenAI's speech endpoint over HTTP: the whole text goes at once, audio comes in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp

from .connection import TargetOptions, TargetRefused, stall

_MODEL = "tts-1"
_VOICE = "alloy"


class OpenAiConnection:
    """First audio still counts from the first text: waiting until it is complete is what this endpoint costs."""

    rate_hz = 24_000
    queue_ms: float | None = None
    server_ms: float | None = None

    def __init__(self, session: aiohttp.ClientSession, options: TargetOptions) -> None:
        self._session, self._options = session, options
        self._text: list[str] = []
        self._complete = asyncio.Event()
        self._response: aiohttp.ClientResponse | None = None
        self._stopped = False

    async def send(self, text: str) -> None:
        self._text.append(text)

    async def end(self) -> None:
        self._complete.set()

    async def interrupt(self, played_ms: int) -> None:  # noqa: ARG002 - HTTP has no word for it
        self._stopped = True
        self.abort()

    async def audio(self) -> AsyncIterator[bytes]:
        await self._complete.wait()
        body = {
            "model": self._options.model or _MODEL,
            "voice": self._options.voice or _VOICE,
            "input": "".join(self._text),
            "response_format": "pcm",
        }
        try:
            url = self._options.url.rstrip("/") + "/v1/audio/speech"
            self._response = await self._session.post(url, json=body)
            if self._response.status != 200:
                raise TargetRefused(f"http_{self._response.status}")
            odd = b""
            async for chunk in self._response.content.iter_any():
                whole = odd + chunk
                odd = whole[len(whole) & ~1 :]
                if len(whole) > 1:
                    yield whole[: len(whole) & ~1]
        except aiohttp.ClientError:
            if not self._stopped:
                raise

    async def close(self) -> None:
        await self._session.close()

    def abort(self) -> None:
        if self._response is not None:
            self._response.close()

    async def stall(self, seconds: float) -> None:
        connection = None if self._response is None else self._response.connection
        await stall(None if connection is None else connection.transport, seconds)


async def open_connection(options: TargetOptions) -> OpenAiConnection:
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else None
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.open_timeout_s)
    return OpenAiConnection(aiohttp.ClientSession(headers=headers, timeout=timeout), options)
