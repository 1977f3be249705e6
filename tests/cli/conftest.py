from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from fakes.gateway.protocol_server import FakeGateway, fake_gateway
from fakes.waiting import DEADLINE_S


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    """A fake gateway in a thread of its own, for commands that run an event loop."""
    started: list[FakeGateway] = []
    running = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with fake_gateway() as gateway:
            started.append(gateway)
            running.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()], daemon=True)
    thread.start()
    assert running.wait(DEADLINE_S)
    yield started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(DEADLINE_S)
    loop.close()
