"""Target `elevenlabs`: one context of its `multi-stream-input` protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator

from .connection import TargetOptions, TargetRefused, WebSocketTargetConnection, open_socket

_CONTEXT = "load"
_VOICE = "default"
_MODEL = "eleven_flash_v2_5"


class ElevenLabsConnection(WebSocketTargetConnection):
    async def send(self, text: str) -> None:
        await self.send_json(text=text, context_id=_CONTEXT)

    async def end(self) -> None:
        await self.send_json(context_id=_CONTEXT, flush=True)
        await self.send_json(context_id=_CONTEXT, close_context=True)

    async def interrupt(self, played_ms: int) -> None:  # noqa: ARG002 - not part of this protocol
        # The first may only end the text; the second stops the speech.
        await self.send_json(context_id=_CONTEXT, close_context=True)
        await self.send_json(context_id=_CONTEXT, close_context=True)

    async def audio(self) -> AsyncIterator[bytes]:
        async for raw in self._socket:
            message = json.loads(raw)
            if "error" in message:
                raise TargetRefused(str(message["error"]))
            if encoded := message.get("audio"):
                yield base64.b64decode(encoded)
            if message.get("isFinal"):
                return
        raise TargetRefused("closed_early")


async def open_connection(options: TargetOptions) -> ElevenLabsConnection:
    path = f"/v1/text-to-speech/{options.voice or _VOICE}/multi-stream-input"
    headers = {"xi-api-key": options.key} if options.key else {}
    query = {"model_id": options.model or _MODEL, "output_format": "pcm_24000"}
    connection = ElevenLabsConnection(await open_socket(options, path, headers, **query))
    await connection.send_json(text=" ", context_id=_CONTEXT)
    return connection
