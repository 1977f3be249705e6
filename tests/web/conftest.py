from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from browser.chromium import READY, Tab, chromium, find_chromium, tab
from fakes.gateway.protocol_server import FakeGateway, fake_gateway
from voxgate.gateway.http.browsers import PAGE_HEADERS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    executable = find_chromium()
    assert executable is not None
    async with chromium(tmp_path_factory.mktemp("profile"), executable) as devtools_port:
        yield devtools_port


@pytest_asyncio.fixture(loop_scope="module")
async def gateway() -> AsyncIterator[FakeGateway]:
    async with fake_gateway(paced=True) as running:
        running.page_headers = PAGE_HEADERS
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def page(gateway: FakeGateway, browser: int) -> AsyncIterator[Tab]:
    async with tab(browser) as opened:
        await opened.open(gateway.url)
        await opened.until(READY)
        await opened.evaluate("document.getElementById('text').focus()")
        yield opened
        assert opened.problems == []
