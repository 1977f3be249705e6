from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fakes.gateway.protocol_server import FakeGateway, fake_gateway


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    async with fake_gateway() as running:
        yield running
