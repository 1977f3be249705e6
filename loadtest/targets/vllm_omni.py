"""Target `vllm-omni`: vLLM-Omni's streaming speech, which generates sentence by sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from .connection import TargetOptions, TargetRefused, WebSocketTargetConnection, open_socket


class VllmOmniConnection(WebSocketTargetConnection):
    async def send(self, text: str) -> None:
        await self.send_json(type="input.text", text=text)

    async def end(self) -> None:
        await self.send_json(type="input.done")

    async def interrupt(self, played_ms: int) -> None:  # noqa: ARG002 - not part of this protocol
        # The server reads nothing while it speaks, so that only closing the connection stops it.
        await self._socket.close()

    async def audio(self) -> AsyncIterator[bytes]:
        async for raw in self._socket:
            if isinstance(raw, bytes):
                if raw:
                    yield raw
                continue
            message = json.loads(raw)
            match message["type"]:
                case "audio.start":
                    self.rate_hz = int(message.get("sample_rate") or self.rate_hz)
                case "error":
                    raise TargetRefused("error")
                case "session.done":
                    return


async def open_connection(options: TargetOptions) -> VllmOmniConnection:
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
    connection = VllmOmniConnection(await open_socket(options, "/v1/audio/speech/stream", headers))
    # A token of its talker is a frame.
    config = {"voice": options.voice, "model": options.model, "max_new_tokens": options.frames}
    await connection.send_json(
        type="session.config",
        response_format="pcm",
        stream_audio=True,
        split_granularity="sentence",
        **{name: value for name, value in config.items() if value},
    )
    return connection
