"""The whole gateway on a real port of the loopback, with the tone talker behind it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fakes.packets import FakeEncoder
from fakes.tone import ToneSynthesizer
from voxgate.gateway.audio import EncoderFactory
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings


@contextlib.asynccontextmanager
async def gateway(
    synthesizer: ToneSynthesizer | None = None,
    *,
    start: bool = True,
    encoder: EncoderFactory = FakeEncoder,
    **options: Any,
) -> AsyncIterator[Gateway]:
    """Serves until the end of the block, and checks that every speech was closed."""
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
