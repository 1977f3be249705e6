"""The page over a connection that is lost in the middle of a speech."""

from __future__ import annotations

import pytest
from browser.chromium import IN_A_BROWSER, READY, tab
from fakes.gateway import loopback
from fakes.gateway.cut_proxy import cut_proxy
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.waiting import until
from voxgate.codecs.encode import PacketEncoder

from .page_helpers import FINISHED, PLAYED_S, choose

pytestmark = IN_A_BROWSER

TEXT = "One two three four five six seven eight nine ten"


async def test_page_resumes_and_plays_every_sample(browser: int) -> None:
    async with loopback.gateway(encoder=PacketEncoder) as served, cut_proxy(served.port) as proxy, tab(browser) as page:
        await page.open(f"http://127.0.0.1:{proxy.port}")
        await page.until(READY)
        await choose(page, "codec", "pcm")
        await page.evaluate(
            "globalThis.states = []; new MutationObserver(() => states.push(document.body.dataset.state))"
            ".observe(document.body, { attributes: true, attributeFilter: ['data-state'] })"
        )
        await page.evaluate("document.getElementById('text').focus()")
        await page.type(TEXT + "\n")
        await page.until(f"{PLAYED_S} > 0.5")
        proxy.cut()
        await until(lambda: page.evaluate("states.includes('reconnecting')"))
        await page.until(FINISHED)
        assert await page.evaluate(PLAYED_S) == pytest.approx(len(tone_pcm(TEXT + "\n")) / 24_000, abs=0.001)
        assert "offline" not in await page.evaluate("states")
        assert await page.evaluate("document.getElementById('error').hidden")
