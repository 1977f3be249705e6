"""The whole gateway on a loopback port, with the tone synthesizer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S
from voxgate.gateway.server import Gateway
from voxgate.gateway.session.outbox import EncoderFactory
from voxgate.gateway.settings import Settings
from websockets.asyncio.client import ClientConnection, connect


@contextlib.asynccontextmanager
async def gateway(
    synthesizer: ToneSynthesizer | None = None,
    *,
    start: bool = True,
    encoder: EncoderFactory = FakeEncoder,
    **options: Any,
) -> AsyncIterator[Gateway]:
    """Serves a gateway; at the end it checks that every speech was closed."""
    synthesizer = synthesizer or ToneSynthesizer()
    served = Gateway(Settings(port=0, **options), synthesizer, encoder)
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
    """The next control message of that type; other messages are skipped. Raises TimeoutError."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message = await socket.recv()
            if isinstance(message, str) and (found := json.loads(message))["type"] == kind:
                return dict(found)
