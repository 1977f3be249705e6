"""The ElevenLabs dialect: one context of `multi-stream-input`."""

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
        await self.say(text=text, context_id=_CONTEXT)

    async def end(self) -> None:
        await self.say(context_id=_CONTEXT, flush=True)
        await self.say(context_id=_CONTEXT, close_context=True)

    async def interrupt(self, played_ms: int) -> None:  # noqa: ARG002 - this dialect does not ask
        # The first could mean "done"; the second is "stop".
        await self.say(context_id=_CONTEXT, close_context=True)
        await self.say(context_id=_CONTEXT, close_context=True)

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
    line = ElevenLabsConnection(await open_socket(options, path, headers, **query))
    await line.say(text=" ", context_id=_CONTEXT)
    return line
