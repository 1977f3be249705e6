"""The Cartesia SDK: a socket with one context for each utterance, from both of its clients, and plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from cartesia import AsyncCartesia, Cartesia
from remote import DriverClient, DriverReport, pieces, serve

VOICE = "heart"
MODEL = "sonic-3"
FORMAT: Any = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
OPTIONS: dict[str, Any] = {"model_id": MODEL, "voice": VOICE, "output_format": FORMAT, "language": "en"}


class CartesiaDriver(DriverClient):
    async def open(self) -> None:
        addresses = {"base_url": self.url, "websocket_base_url": self.url.replace("http", "ws", 1)}
        self.kind = sys.argv[2]
        self.sdk = AsyncCartesia(api_key="any", max_retries=0, timeout=30, **addresses)
        self.sync_sdk = Cartesia(api_key="any", max_retries=0, timeout=30, **addresses)
        self.socket: Any = None
        self.manager: Any = None

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        if self.kind == "sync":
            await asyncio.get_running_loop().run_in_executor(None, self._say, heard, text, stop_after_s)
            return
        try:
            async with aclosing(self._events(text)) as events:
                async for event in events:
                    _take(heard, event)
                    if stop_after_s is not None and heard.audio_s >= stop_after_s:
                        if self.kind == "async":
                            await self.context.cancel()
                        break
        except BaseException:
            await self._forget_socket()
            raise
        heard.finished = True

    async def _events(self, text: str) -> AsyncGenerator[Any, None]:
        if self.kind == "bytes":
            async with self.sdk.tts.with_streaming_response.generate(transcript=text, **OPTIONS) as response:
                async for chunk in response.iter_bytes():
                    yield chunk
            return
        if self.kind == "sse":
            async with await self.sdk.tts.generate_sse(transcript=text, add_timestamps=True, **OPTIONS) as stream:
                async for event in stream:
                    yield event
            return
        if self.socket is None:
            self.manager = self.sdk.tts.websocket_connect()
            self.socket = await self.manager.enter()
        self.context = self.socket.context(add_timestamps=True, timeout=20, **OPTIONS)
        for piece in pieces(text):
            await self.context.push(piece)
        await self.context.no_more_inputs()
        async for event in self.context.receive():
            yield event

    async def _forget_socket(self) -> None:
        """As after any lost socket, the next utterance connects again."""
        manager, self.manager, self.socket = self.manager, None, None
        if manager is not None:
            await manager.__aexit__(None, None, None)

    def _say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        try:
            if self.socket is None:
                self.manager = self.sync_sdk.tts.websocket_connect()
                self.socket = self.manager.enter()
            context = self.socket.context(add_timestamps=True, timeout=20, **OPTIONS)
            for event in self._sync_events(context, text):
                if event.context_id != context._context_id:
                    continue  # what was under way when the context before was cancelled
                _take(heard, event)
                if stop_after_s is not None and heard.audio_s >= stop_after_s:
                    context.cancel()
                    break
        except BaseException:
            manager, self.manager, self.socket = self.manager, None, None
            if manager is not None:
                manager.__exit__(None, None, None)
            raise
        heard.finished = True

    @staticmethod
    def _sync_events(context: Any, text: str) -> Iterator[Any]:
        for piece in pieces(text):
            context.push(piece)
        context.no_more_inputs()
        yield from context.receive()

    async def close(self) -> None:
        await self.sdk.close()
        self.sync_sdk.close()


def _take(heard: DriverReport, event: Any) -> None:
    """Notes audio, words and errors. Raises RuntimeError for an error."""
    if isinstance(event, bytes):
        heard.add(event)
    elif event.type == "chunk":
        heard.add(base64.b64decode(event.data))
    elif event.type == "timestamps":
        heard.words += list(zip(event.word_timestamps.words, event.word_timestamps.start, strict=True))
    elif event.type == "error":
        raise RuntimeError(event.error)


if __name__ == "__main__":
    serve(CartesiaDriver)
