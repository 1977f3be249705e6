"""Serves a gateway with a real voice in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fakes.waiting import DEADLINE_S, until
from voxgate.gateway.server import Gateway, serve_until_signal
from voxgate.pipeline.interface import EngineState
from voxgate.pipeline.synthesizer import QwenSynthesizer

ENGINE_START_S = 180.0
"""Longest start of the engine; the first one on a machine compiles kernels."""


@asynccontextmanager
async def serving(gateway: Gateway, synthesizer: QwenSynthesizer) -> AsyncIterator[int]:
    """Yields the port once the gateway is ready to speak."""
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_until_signal(gateway, listening.set_result))
    try:
        await asyncio.wait([listening, task], timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        await until(lambda: synthesizer.state is EngineState.READY or task.done(), ENGINE_START_S)
        if task.done():
            await task
        yield listening.result()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=DEADLINE_S)
        assert task.done(), "the gateway did not close"
