"""The page's comparison of voices, in a real browser against the fake gateway."""

from __future__ import annotations

from browser.chromium import IN_A_BROWSER, Tab
from fakes.gateway.protocol_server import FakeGateway

from .page_helpers import choose

pytestmark = IN_A_BROWSER

SHOWN = "document.getElementById('comparing').textContent"
COMPARE = "document.getElementById('compare').click()"


RECORD = (
    "globalThis.shown = []; new MutationObserver(() => shown.push(document.getElementById('comparing').textContent))"
    ".observe(document.getElementById('comparing'), { childList: true })"
)


def voices(gateway: FakeGateway) -> list[str]:
    return [utterance.options["voice"] for utterance in gateway.utterances.values()]


async def test_text_is_spoken_in_every_voice_in_a_row(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('text').value = 'Hi you'")
    await choose(page, "voice", "whistle")
    await page.evaluate("document.getElementById('instructions').value = 'Softly'")
    await page.evaluate(RECORD)
    await page.evaluate(COMPARE)
    await page.until("shown.at(-1) === ''")
    assert await page.evaluate("shown") == ["hum, 1 of 2", "A whistle, 2 of 2", ""]
    assert voices(gateway) == ["hum", "whistle"]
    assert [utterance.text for utterance in gateway.utterances.values()] == ["Hi you", "Hi you"]
    # Only the second voice takes instructions.
    assert [utterance.options.get("instructions") for utterance in gateway.utterances.values()] == [None, "Softly"]
    assert await page.evaluate("document.getElementById('voice').value") == "whistle"


async def test_sample_is_spoken_without_text(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate(COMPARE)
    await page.until("voxgate.speech.player.report.played > 0")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert next(iter(gateway.utterances.values())).text.startswith("Good evening.")


async def test_escape_ends_the_comparison(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('text').value = 'One two three four'")
    await page.evaluate(COMPARE)
    await page.until("voxgate.speech.player.report.played > 0")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert await page.evaluate(SHOWN) == ""
    await page.evaluate("document.getElementById('speak').click()")
    await page.until("voxgate.speech.utterance?.done")
    assert voices(gateway) == ["hum", "hum"]


async def test_typing_ends_the_comparison(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('text').value = 'One two three four five six seven eight nine ten'")
    await page.evaluate(COMPARE)
    await page.until(f"{SHOWN} === 'hum, 1 of 2'")
    await page.type("x")
    await page.until(f"{SHOWN} === ''")
    await page.press("Escape")
    await page.until("voxgate.speech.last && !voxgate.speech.utterance")
    assert "whistle" not in voices(gateway)
