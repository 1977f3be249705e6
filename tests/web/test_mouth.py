"""The mouth on the page follows the speech by the audio clock, where the voice has mouth shapes."""

from __future__ import annotations

from browser.chromium import IN_A_BROWSER, Tab
from fakes.gateway.protocol_server import FakeGateway

from .page_helpers import FINISHED, PLAYED_S

pytestmark = IN_A_BROWSER

MOUTH = "document.getElementById('mouth')"
HIDDEN = f"getComputedStyle({MOUTH}).display === 'none'"
RECORD = (
    "globalThis.shown = []; globalThis.late = 0;"
    f"new MutationObserver(() => {{ const shape = {MOUTH}.dataset.shape;"
    "  const told = voxgate.speech.utterance?.visemes ?? [], ms = voxgate.speech.player.heard_ms;"
    "  if (shape === shown.at(-1)) return; shown.push(shape);"
    "  const near = (each) => each.viseme === shape && Math.abs(each.start_ms - ms) < 160;"
    "  if (shape !== 'sil' && !told.some(near)) late++;"
    f"}}).observe({MOUTH}, {{ attributes: true }})"
)
"""Records each shape that is shown, and counts those that are not of the time that is heard."""


async def asked(gateway: FakeGateway) -> list[bool | None]:
    return [message.get("visemes") for message in gateway.received if message["type"] == "start"]


async def test_mouth_takes_the_shapes_of_the_speech(page: Tab, gateway: FakeGateway) -> None:
    assert await page.evaluate(HIDDEN)
    await page.evaluate(RECORD)
    await page.type("aaaa mmmm oooo.\n")
    await page.until(f"{PLAYED_S} > 0.1")
    assert not await page.evaluate(HIDDEN)
    await page.until(FINISHED)
    await page.until(f"{MOUTH}.dataset.shape === 'sil'")
    shown = await page.evaluate("shown")
    assert [shape for shape in shown if shape != "sil"] == ["aa", "PP", "O"]
    assert await page.evaluate("late") == 0
    assert await asked(gateway) == [True]
    box = await page.evaluate(f"(({{ width, height }}) => [width, height])({MOUTH}.getBBox())")
    assert 0 < box[0] <= 64
    assert 0 < box[1] <= 40


async def test_mouth_closes_at_an_interrupt(page: Tab) -> None:
    await page.type("a" * 60)
    await page.until(f"{MOUTH}.dataset.shape === 'aa'")
    await page.press("Escape")
    await page.until(f"{MOUTH}.dataset.shape === 'sil'")


async def test_voice_without_shapes_is_not_asked_for_them(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('voice').value = 'whistle'")
    await page.type("am\n")
    await page.until(FINISHED)
    assert await asked(gateway) == [None]
    assert await page.evaluate(HIDDEN)


async def test_reduced_motion_has_no_mouth(page: Tab, gateway: FakeGateway) -> None:
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    await page.type("am\n")
    await page.until(FINISHED)
    assert await asked(gateway) == [None]
    assert await page.evaluate(HIDDEN)
