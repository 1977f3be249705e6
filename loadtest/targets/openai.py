"""Target `openai`: the speech endpoint over HTTP, with the whole text in the request and audio in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from voxgate.client.address import ServerAddress

from .connection import TargetOptions, TargetRefused, stall

_MODEL = "tts-1"
_VOICE = "alloy"


class OpenAiConnection:
    """Times count from the first piece of text: waiting for the complete text is a cost of this endpoint."""

    rate_hz = 24_000
    queue_ms: float | None = None
    server_ms: float | None = None

    def __init__(self, session: aiohttp.ClientSession, options: TargetOptions) -> None:
        self._session, self._options = session, options
        self._text: list[str] = []
        self._complete = asyncio.Event()
        self._response: aiohttp.ClientResponse | None = None
        self._interrupted = False

    async def send(self, text: str) -> None:
        self._text.append(text)

    async def end(self) -> None:
        self._complete.set()

    async def interrupt(self, played_ms: int) -> None:  # noqa: ARG002 - not part of this protocol
        self._interrupted = True
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
            address = ServerAddress.parse(self._options.url)
            url = address.http_url(address.path.rstrip("/") + "/v1/audio/speech")
            self._response = await self._session.post(url, json=body)
            if self._response.status != 200:
                raise TargetRefused(f"http_{self._response.status}")
            remainder = b""  # half a sample
            async for chunk in self._response.content.iter_any():
                received = remainder + chunk
                even = len(received) & ~1
                remainder = received[even:]
                if even:
                    yield received[:even]
        except aiohttp.ClientError:
            if not self._interrupted:
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
