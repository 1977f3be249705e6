from __future__ import annotations

import json

from browser.chromium import IN_A_BROWSER, READY, tab
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings

pytestmark = IN_A_BROWSER


async def test_page_asks_for_a_required_key(browser: int) -> None:
    synthesizer = ToneSynthesizer()
    served = Gateway(Settings(port=0, keys=(f"ada={hash_key('right')}",)), synthesizer, FakeEncoder)
    await served.open()
    await synthesizer.start()
    try:
        async with tab(browser) as page:
            await page.open(f"http://127.0.0.1:{served.port}/")
            await page.until("!document.getElementById('key-form').hidden")
            for key, message in (
                ("wrong", "This key is not valid."),
                ("näh", "letters, digits and punctuation"),
                ("right", ""),
            ):
                await page.evaluate(
                    f"document.getElementById('key').value = {json.dumps(key)};"
                    "document.getElementById('key-form').requestSubmit()"
                )
                if message:
                    await page.until(
                        f"document.getElementById('key-error').textContent.includes({json.dumps(message)})"
                    )
            await page.until(READY)
            assert await page.evaluate("document.getElementById('key-form').hidden")
            assert await page.evaluate("document.activeElement.id") == "text"
            assert await page.evaluate("document.getElementById('voice').options.length") == 2
            # The browser reports the refused request with the wrong key.
            assert all("401" in problem for problem in page.problems)
    finally:
        await served.close()
