"""The gateway on a real port of the loopback: handshakes, HTTP, floods, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakes.packets import FakeEncoder, s16le
from fakes.tone import Script, ToneSynthesizer, tone_pcm
from voxgate.gateway.audio_header import unpack
from voxgate.gateway.server import Gateway, serve
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import EngineError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

TEXT = "Well."


@contextlib.asynccontextmanager
async def gateway(
    synthesizer: ToneSynthesizer | None = None, *, start: bool = True, **options: Any
) -> AsyncIterator[Gateway]:
    synthesizer = synthesizer or ToneSynthesizer()
    served = Gateway(Settings(port=0, **options), synthesizer, FakeEncoder)
    await served.open()
    if start:
        await synthesizer.start()
    try:
        yield served
    finally:
        await served.close()
        assert not synthesizer.open_speeches


def dial(served: Gateway, **options: Any) -> connect:
    return connect(f"ws://127.0.0.1:{served.port}/v1/speech", **options)


async def ask(socket: ClientConnection, **fields: Any) -> None:
    await socket.send(json.dumps(fields))


async def next_of(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next control message of that type; others are passed over."""
    async with asyncio.timeout(5):
        while True:
            message = await socket.recv()
            if isinstance(message, str) and (found := json.loads(message))["type"] == kind:
                return dict(found)


async def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """A plain HTTP request: status, headers in lower case, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, body


async def test_an_utterance_over_a_real_socket() -> None:
    async with gateway() as served, dial(served) as socket:
        session = json.loads(await socket.recv())
        assert (session["type"], session["protocol"], session["default_voice"]) == ("session", 1, "ada")
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text=TEXT)
        await ask(socket, type="end", utterance="a")
        assert json.loads(await socket.recv())["type"] == "started"
        audio = b""
        while isinstance(message := await socket.recv(), bytes):
            audio += unpack(message)[1]
        assert audio == s16le(tone_pcm(TEXT))
        assert json.loads(message)["type"] == "done"
