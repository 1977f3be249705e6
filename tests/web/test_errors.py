"""Waiting, failures and lost connections on the page, in a real browser."""

from __future__ import annotations

import pytest
from browser.chromium import IN_A_BROWSER, READY, Tab, tab
from fakes.gateway.protocol_server import HEADER, FakeGateway

from .page_helpers import FINISHED, PLAYED_S, choose

pytestmark = IN_A_BROWSER


async def test_queue_position_is_shown(page: Tab, gateway: FakeGateway) -> None:
    gateway.script["x"] = [{"type": "queued", "position": 3, "eta_ms": 1200}]
    await page.type("x")
    await page.until("document.getElementById('state-text').textContent.includes('Position 3 in the queue')")


async def test_error_is_shown_as_a_sentence(page: Tab, gateway: FakeGateway) -> None:
    gateway.script["x"] = [{"type": "error", "code": "at_capacity", "message": "all busy", "retryable": True}]
    await page.type("x")
    await page.until("document.getElementById('error').textContent === 'all busy'")
    await page.until(READY)


async def test_page_waits_for_a_loading_model(browser: int, gateway: FakeGateway) -> None:
    gateway.ready = False
    async with tab(browser) as page:
        await page.open(gateway.url)
        await page.until(
            "document.getElementById('state-text').textContent.match(/^The voice model is loading \\([0-9]+ s\\)$/)"
        )
        assert gateway.received == []
        gateway.ready = True
        await page.until(READY)


async def test_lost_connection_is_reopened(page: Tab, gateway: FakeGateway) -> None:
    gateway.script["x"] = [4001]
    await page.type("x")
    await page.until("document.body.dataset.state === 'offline'")
    await page.until(READY)
    await page.type(" back\n")
    await page.until(FINISHED)


async def test_text_lost_with_the_connection_can_be_spoken_again(page: Tab, gateway: FakeGateway) -> None:
    gateway.hold_after = 14
    await page.type("One two three four five six")
    await page.until(f"{PLAYED_S} > 0.9")
    await page.evaluate("voxgate.connection.socket.close()")
    await page.until("!document.getElementById('stopped').hidden")
    spoken = await page.evaluate("document.getElementById('spoken').textContent")
    remaining = await page.evaluate("document.getElementById('remaining').textContent")
    assert spoken.startswith("One tw")
    assert f"{spoken} {remaining}" == "One two three four five six"
    gateway.release()
    await page.until(READY)
    await page.evaluate("document.getElementById('continue').click()")
    await page.until(FINISHED)
    assert list(gateway.utterances.values())[-1].text.strip() == remaining


async def test_connection_lost_after_the_last_word_cuts_nothing(page: Tab) -> None:
    await page.type("A whole line.\n")
    await page.until("voxgate.speech.utterance.done")
    await page.evaluate("voxgate.connection.socket.close()")
    await page.until(FINISHED)
    assert await page.evaluate(PLAYED_S) == pytest.approx(14 * 0.08, abs=1e-9)
    assert await page.evaluate("document.getElementById('error').hidden")


async def test_end_can_be_interrupted_without_a_connection(page: Tab) -> None:
    await page.type("A whole line.\n")
    await page.until("voxgate.speech.utterance.done")
    await page.evaluate("voxgate.connection.socket.close()")
    await page.until("!voxgate.connection.open")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert await page.evaluate("document.getElementById('spoken').textContent") == "A whole line."


async def test_insecure_context_is_explained(browser: int, gateway: FakeGateway) -> None:
    async with tab(browser) as page:
        await page.open(gateway.url.replace("127.0.0.1", "voice.test"))
        await page.until("document.getElementById('error').textContent.includes('over HTTPS, or from localhost')")
        assert page.problems == []


async def test_page_executes_no_code_but_its_own_files(browser: int, gateway: FakeGateway) -> None:
    """The Content-Security-Policy holds. If the page needed what it forbids, that would be a problem elsewhere."""
    async with tab(browser) as page:
        await page.open(gateway.url)
        await page.until(READY)
        for attempt in (
            "document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = 1' }))",
            "document.body.setAttribute('onclick', 'window.ran = 1'), document.body.click()",
        ):
            await page.evaluate(attempt)
        assert await page.evaluate("window.ran === undefined")
        assert await page.evaluate("fetch('https://voice.test/').then(() => 'loaded', () => 'refused')") == "refused"
        assert all("Content Security Policy" in problem for problem in page.problems)


async def test_late_audio_is_an_underrun(page: Tab) -> None:
    await choose(page, "codec", "pcm")
    await page.type("Hm")
    await page.until("voxgate.speech.player.report.played === 3840")
    await page.until("performance.now() - voxgate.page.changedAt > 1200")  # long after the pause was flushed
    # More audio of the same text, as from a late gateway.
    await page.evaluate("voxgate.speech.player.push(new Float32Array(4800), 24000)")
    await page.until("voxgate.speech.player.report.underruns === 1")


async def test_missing_audio_is_reported(page: Tab, gateway: FakeGateway) -> None:
    format = {"codec": "pcm", "sample_rate": 24_000, "packet_ms": 80, "bitrate": 0, "pre_skip": 0}
    started = {
        "type": "started",
        "number": 1,
        "voice": "hum",
        "language": "auto",
        "seed": 1,
        "format": format,
    }
    gateway.script["x"] = [started, HEADER.pack(1, 0, 2, 1, 1, 2) + bytes(4)]
    await page.type("x")
    await page.until("document.getElementById('error').textContent.startsWith('Audio is missing')")
