"""Pause and Continue on the page, in a real browser against the whole gateway; the samples of its player in Node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import IN_A_BROWSER, READY, Tab, tab
from fakes.gateway import loopback
from fakes.pipeline.tone_synthesizer import tone_pcm
from voxgate.codecs.encode import PacketEncoder

from .node import node_version, run_script
from .page_helpers import FINISHED, PLAYED_S, choose

pytestmark = IN_A_BROWSER

TEXT = "One two three four five six seven\n"
PAUSE = "document.getElementById('pause')"
SHOWN = f"[{PAUSE}.textContent, document.getElementById('highlight-word').textContent, voxgate.speech.player.heard_ms]"
DRAWN = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
SILENT_S = 0.3
"""By the audio clock: more than is played between two reports."""


@asynccontextmanager
async def speaking_page(browser: int, codec: str = "pcm", **options: Any) -> AsyncIterator[Tab]:
    async with loopback.gateway(encoder=PacketEncoder, **options) as served, tab(browser) as page:
        await page.open(f"http://127.0.0.1:{served.port}")
        await page.until(READY)
        await choose(page, "codec", codec)
        await page.evaluate("document.getElementById('text').focus()")
        await page.type(TEXT)
        yield page
        assert page.problems == []


@pytest.mark.parametrize("codec", ["pcm", "opus"])
@pytest.mark.parametrize("moment", [f"{PLAYED_S} > 0.5", "voxgate.speech.utterance.done"])
async def test_paused_speech_goes_on_with_the_next_sample(browser: int, codec: str, moment: str) -> None:
    async with speaking_page(browser, codec, hold_max_ms=60_000, send_ahead_ms=1500) as page:
        await page.until(f"{moment} && !{PAUSE}.disabled")  # which is drawn later than all audio may be there
        await page.evaluate(f"{PAUSE}.click()")
        await page.until("voxgate.speech.utterance.held && voxgate.speech.player.report.type === 'paused'")
        await page.until("document.body.dataset.state === 'paused'")
        await page.until(f"{PAUSE}.textContent === 'Continue'")
        await page.evaluate(DRAWN)
        played_s, shown = await page.evaluate(PLAYED_S), await page.evaluate(SHOWN)
        # The position of a hold is in whole milliseconds.
        assert round(played_s * 1000) >= await page.evaluate("voxgate.speech.utterance.held.played_ms")
        player = "voxgate.speech.player"
        await page.until(f"{player}.parts.context.currentTime - {player}.report.at > {SILENT_S}")
        assert await page.evaluate(PLAYED_S) == played_s
        assert await page.evaluate(SHOWN) == shown
        assert await page.evaluate("document.getElementById('mouth').dataset.shape") == "sil"
        await page.evaluate(f"{PAUSE}.click()")
        await page.until(FINISHED)
        whole_s = len(tone_pcm(TEXT)) / 24_000
        assert await page.evaluate(PLAYED_S) == pytest.approx(whole_s, abs=0.001)
        recording = "voxgate.speech.last.recording"
        assert await page.evaluate(f"{recording}.length / {recording}.rate") == pytest.approx(whole_s, abs=0.001)
        assert await page.evaluate("[voxgate.speech.last.id, document.getElementById('error').hidden]") == [
            "page-1",
            True,
        ]
        await page.until(f"{PAUSE}.textContent === 'Pause' && {PAUSE}.disabled")


async def test_pause_beyond_the_limit_offers_the_rest(browser: int) -> None:
    async with speaking_page(browser, hold_max_ms=400) as page:
        await page.until(f"{PLAYED_S} > 0.5")
        await page.evaluate(f"{PAUSE}.click()")
        await page.until("!document.getElementById('stopped').hidden")
        assert await page.evaluate("document.body.dataset.state") == "ready"
        assert (
            await page.evaluate("document.getElementById('state-text').textContent")
            == "Stopped: a pause lasts 0.4 s at most"
        )
        assert (await page.evaluate("document.getElementById('remaining').textContent")).endswith("seven")
        await page.evaluate("document.getElementById('continue').click()")
        await page.until("voxgate.speech.utterance?.id === 'page-2' && voxgate.speech.player.report.played > 0")


async def test_paused_speech_can_be_interrupted(browser: int) -> None:
    async with speaking_page(browser) as page:
        await page.until(f"{PLAYED_S} > 0.5")
        await page.evaluate(f"{PAUSE}.click()")
        await page.until("voxgate.speech.utterance.held")
        await page.press("Escape")
        await page.until("!document.getElementById('stopped').hidden")
        assert (await page.evaluate("document.getElementById('remaining').textContent")).endswith("seven")


async def test_speech_goes_on_when_its_pause_is_refused(browser: int) -> None:
    async with speaking_page(browser) as page:
        await page.until(f"{PLAYED_S} > 0.3")
        await page.evaluate("voxgate.speech.pause(1e9)")  # longer than the gateway holds anything
        await page.until("!document.getElementById('error').hidden")
        await page.until(FINISHED)
        assert await page.evaluate(PLAYED_S) == pytest.approx(len(tone_pcm(TEXT)) / 24_000, abs=0.001)


async def test_refused_continue_leaves_the_pause_as_it_is(browser: int) -> None:
    async with speaking_page(browser, interrupts_per_s=0.001, hold_max_ms=3000) as page:  # one, then none for long
        await page.until(f"{PLAYED_S} > 0.3")
        await page.evaluate(f"{PAUSE}.click()")
        await page.until("voxgate.speech.utterance.held")
        await page.evaluate(f"{PAUSE}.click()")
        await page.until("!document.getElementById('error').hidden")
        await page.until("!document.getElementById('stopped').hidden")  # at the end of the pause
        assert (await page.evaluate("document.getElementById('remaining').textContent")).endswith("seven")


async def test_gateway_that_holds_nothing_has_no_pause(browser: int) -> None:
    async with speaking_page(browser, hold_max_ms=0) as page:
        await page.until(f"{PLAYED_S} > 0.1")
        assert await page.evaluate(f"getComputedStyle({PAUSE}).display") == "none"


@pytest.mark.skipif(node_version() < 20, reason="no Node 22 on this machine (20 does for the tests)")
async def test_player_repeats_and_skips_no_sample_at_a_pause() -> None:
    result = await run_script(Path(__file__).with_name("pause_worklet.mjs"))
    assert result.pop("deviation") < 1 / 240  # a step of the fade of 10 ms
    assert result == {
        "paused": {"reports": [{"type": "paused", "played": 20 * 128}], "ended": 0},
        "fades": True,
        "silent": True,
        "rest": True,
        "endedInPause": 1,
        "ended": [6000, 6000],
    }
