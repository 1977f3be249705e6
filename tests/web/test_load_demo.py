from __future__ import annotations

from browser.chromium import IN_A_BROWSER, READY, Tab, tab
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.gateway.protocol_server import FakeGateway
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings

from .page_helpers import choose

pytestmark = IN_A_BROWSER


async def test_load_demo_starts_and_stops(page: Tab, gateway: FakeGateway) -> None:
    await choose(page, "load-demo-size", "3")
    await page.evaluate("document.getElementById('load-demo-start').click()")
    await page.until(
        "voxgateLoadDemo.listeners.length === 3 && document.getElementById('load-demo-listeners').children.length === 3"
    )
    await page.until("voxgateLoadDemo.listeners.every(({ firstAudioTimes }) => firstAudioTimes.length)")
    await page.until(
        "/^3 connected, .* first audio after \\d+ ms/.test(document.getElementById('load-demo-summary').innerText)"
    )
    await page.evaluate("document.getElementById('load-demo-stop').click()")
    assert await page.evaluate("document.getElementById('load-demo-listeners').children.length") == 0
    assert await page.evaluate("document.getElementById('load-demo-start').disabled") is False
    voices = {utterance.options.get("voice") for utterance in gateway.utterances.values()}
    assert len(voices) == 1


async def test_load_demo_beyond_capacity_is_refused(browser: int) -> None:
    synthesizer = ToneSynthesizer(ToneScript(), slots=1)
    served = Gateway(Settings(port=0, queue_length=0), synthesizer, FakeEncoder)
    await served.open()
    await synthesizer.start()
    try:
        async with tab(browser) as page:
            await page.open(f"http://127.0.0.1:{served.port}/")
            await page.until(READY)
            await choose(page, "codec", "pcm")
            await choose(page, "load-demo-size", "3")
            await page.evaluate("document.getElementById('load-demo-start').click()")
            await page.until("voxgateLoadDemo.listeners.some(({ refused }) => refused)")
            await page.until("/[1-9]\\d* refused/.test(document.getElementById('load-demo-summary').innerText)")
            await page.evaluate("document.getElementById('load-demo-stop').click()")
            assert page.problems == []
    finally:
        await served.close()
