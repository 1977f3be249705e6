"""Target `deepgram`: version 2 of its streaming speech protocol; version 1 with `--model v1:NAME`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from websockets.asyncio.client import ClientConnection

from .connection import TargetOptions, TargetRefused, WebSocketTargetConnection, open_socket

_END_TYPES = frozenset({"SpeechMetadata", "SpeechInterrupted"})
_END_TYPES_V1 = frozenset({"Flushed", "Cleared"})


class DeepgramConnection(WebSocketTargetConnection):
    def __init__(self, socket: ClientConnection, version: int) -> None:
        super().__init__(socket)
        self._version = version

    async def send(self, text: str) -> None:
        await self.send_json(type="Speak", text=text)

    async def end(self) -> None:
        await self.send_json(type="Flush")

    async def interrupt(self, played_ms: int) -> None:
        if self._version == 1:
            await self.send_json(type="Clear")
        else:
            await self.send_json(type="Interrupt", playback_offset={"type": "time_ms", "value": played_ms})

    async def audio(self) -> AsyncIterator[bytes]:
        end_types = _END_TYPES_V1 if self._version == 1 else _END_TYPES
        async for raw in self._socket:
            if isinstance(raw, bytes):
                if raw:
                    yield raw
                continue
            message = json.loads(raw)
            if message["type"] == "Error":
                raise TargetRefused(str(message.get("code") or message.get("err_code") or "error"))
            if message["type"] in end_types:
                return
        raise TargetRefused("closed_early")


async def open_connection(options: TargetOptions) -> DeepgramConnection:
    version = 1 if options.model.startswith("v1") else 2
    query = {"encoding": "linear16", "sample_rate": "24000"}
    if voice := options.voice or options.model.partition(":")[2]:
        query["model"] = voice
    headers = {"Authorization": f"Token {options.key}"} if options.key else {}
    return DeepgramConnection(await open_socket(options, f"/v{version}/speak", headers, **query), version)
