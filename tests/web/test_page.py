"""Playback and layout of the page, in a real browser against the fake gateway."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.chromium import IN_A_BROWSER, Tab
from fakes.gateway.protocol_server import VOICES, FakeGateway
from fakes.waiting import until

from .page_helpers import FINISHED, PLAYED_S, choose, sent_messages

pytestmark = IN_A_BROWSER


def acked(gateway: FakeGateway) -> list[int]:
    """The positions that the page acknowledged."""
    return [message["played_samples"] for message in gateway.received if message["type"] == "ack"]


@pytest.mark.parametrize("codec", ["pcm", "opus"])
async def test_every_sample_of_typed_text_is_played(page: Tab, gateway: FakeGateway, codec: str) -> None:
    if codec == "opus":
        pytest.importorskip("opuslib")
    await choose(page, "codec", codec)
    await page.type("Hello you")
    await page.press("Enter")
    await page.until(FINISHED)
    utterance = next(iter(gateway.utterances.values()))
    assert utterance.text == "Hello you\n"
    assert utterance.options["format"]["codec"] == codec
    # Ten tones of 80 ms, exactly, whatever pre-skip and padding the codec added.
    assert await page.evaluate(PLAYED_S) == pytest.approx(0.8, abs=1e-9)
    assert await page.evaluate("voxgate.speech.player.rate") == {"pcm": 24_000, "opus": 48_000}[codec]
    assert await page.evaluate("voxgate.speech.player.report.dropped") == 0
    assert sent_messages(gateway) == ["Hello you\n", "end"]
    assert await page.evaluate("parseInt(document.getElementById('first-audio').textContent)") > 0


async def test_player_reports_played_samples(page: Tab, gateway: FakeGateway) -> None:
    await page.type("A longer line.\n")
    await page.until(FINISHED)
    assert acked(gateway) == sorted(acked(gateway))
    assert 0 < acked(gateway)[-1] <= 15 * 1920


async def test_escape_shows_spoken_and_unspoken_text(page: Tab) -> None:
    await page.type("One two three four five six")
    await page.until(f"{PLAYED_S} > 0.5")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    spoken = await page.evaluate("document.getElementById('spoken').textContent")
    remaining = await page.evaluate("document.getElementById('remaining').textContent")
    assert spoken.startswith("One t")
    assert remaining.endswith("six")
    assert f"{spoken} {remaining}".replace(" ", "") == "Onetwothreefourfivesix"


async def test_unspoken_text_can_be_spoken_after_an_interrupt(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two three four")
    await page.until(f"{PLAYED_S} > 0.3")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    await page.evaluate("document.getElementById('continue').click()")
    await page.until(FINISHED)
    first, second = gateway.utterances.values()
    assert first.text == "One two "
    assert second.text.endswith("three four")  # including text that was never sent
    assert second.ended


async def test_chosen_voice_is_used(page: Tab, gateway: FakeGateway) -> None:
    assert await page.evaluate("[...document.getElementById('voice').options].map((o) => o.value)") == [
        "hum",
        "whistle",
    ]
    assert await page.evaluate("[...document.getElementById('voice').options].map((o) => o.text)") == [
        "hum",
        "A whistle",
    ]
    await page.evaluate("document.getElementById('voice').value = 'whistle'")
    await page.type("x\n")
    await page.until(FINISHED)
    assert next(iter(gateway.utterances.values())).options["voice"] == "whistle"


async def test_new_voice_appears_when_the_list_is_opened(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('voice').value = 'whistle'")
    new = {"name": "sigh", "languages": ["auto"], "description": "", "instructions": False}
    gateway.voices = VOICES | {"voices": [*VOICES["voices"], new]}
    await page.evaluate("document.getElementById('voice').dispatchEvent(new Event('pointerenter'))")
    await page.until("document.getElementById('voice').options.length === 3")
    assert await page.evaluate("document.getElementById('voice').value") == "whistle"


async def test_current_word_is_scrolled_into_view(page: Tab) -> None:
    await page.evaluate("document.getElementById('text').style.maxHeight = '3lh'")
    await page.evaluate("document.getElementById('text').style.minHeight = 0")
    text = "\\n".join("Aye bee see" for _ in range(6))
    await page.evaluate(f"document.getElementById('text').value = '{text}'")
    await page.evaluate("voxgate.page.changedAt = -1e6; document.getElementById('text').scrollTop = 0")
    await page.evaluate("document.getElementById('speak').click()")
    await page.until("document.getElementById('text').scrollTop > 0")
    inside = "((w, t) => w.top >= t.top && w.bottom <= t.bottom + 1)(...['highlight-word', 'text'].map((id) => "
    inside += "document.getElementById(id).getBoundingClientRect()))"
    assert await page.evaluate(inside)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_page_fits_a_phone(page: Tab, scheme: str, tmp_path: Path) -> None:
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    unnamed = (
        "[...document.querySelectorAll('button, select, textarea, input')]"
        ".filter((each) => !each.labels?.length && !each.textContent.trim()).length"
    )
    assert await page.evaluate(unnamed) == 0
    await page.screenshot(tmp_path / f"{scheme}.png")


async def test_single_frame_is_played(page: Tab, gateway: FakeGateway) -> None:
    await choose(page, "codec", "pcm")
    await page.type("a")  # 80 ms: less than the start threshold
    await page.until("voxgate.speech.player.report.played === 1920")
    await until(lambda: acked(gateway))
    assert acked(gateway)[-1] == 1920


async def test_last_words_can_be_interrupted(page: Tab) -> None:
    last = "incomprehensibilities" * 4  # several seconds of playback
    await page.type(f"One two {last}\n")
    await page.until(f"voxgate.speech.utterance.done && {PLAYED_S} > 0.5")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert last.endswith(await page.evaluate("document.getElementById('remaining').textContent"))
