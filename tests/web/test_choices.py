"""Options of the page, saving and copying, and pictures of it."""

from __future__ import annotations

import base64
import json
import struct

from browser.chromium import IN_A_BROWSER, Tab
from fakes.gateway.protocol_server import FakeGateway

from .page_helpers import FINISHED, choose

pytestmark = IN_A_BROWSER


async def test_language_and_instructions_follow_the_voice(page: Tab, gateway: FakeGateway) -> None:
    assert await page.evaluate("document.getElementById('instructions').disabled")
    await choose(page, "voice", "whistle")
    assert not await page.evaluate("document.getElementById('instructions').disabled")
    await choose(page, "language", "english")
    await choose(page, "instructions", " whispering ")
    await page.evaluate("document.getElementById('normalise').checked = true")
    await page.type("x\n")
    await page.until(FINISHED)
    options = next(iter(gateway.utterances.values())).options
    assert {name: options[name] for name in ("voice", "language", "instructions", "normalise")} == {
        "voice": "whistle",
        "language": "english",
        "instructions": "whispering",
        "normalise": True,
    }


async def test_options_left_at_default_are_not_sent(page: Tab, gateway: FakeGateway) -> None:
    await choose(page, "voice", "hum")
    await page.evaluate("localStorage.clear()")
    await choose(page, "language", "auto")
    await page.type("x\n")
    await page.until(FINISHED)
    options = next(iter(gateway.utterances.values())).options
    assert not {"language", "instructions", "normalise"} & options.keys()


async def test_audio_can_be_saved(page: Tab) -> None:
    await choose(page, "codec", "pcm")
    assert await page.evaluate("document.getElementById('download').disabled")
    await page.type("Five!\n")
    await page.until(FINISHED)
    await page.until("!document.getElementById('download').disabled")
    encoded = await page.evaluate(
        "voxgate.speech.last.recording.wav().arrayBuffer()"
        ".then((data) => btoa(String.fromCharCode(...new Uint8Array(data))))"
    )
    data = base64.b64decode(encoded)
    riff, size, wave, channels, rate, bits = struct.unpack_from("<4sI8s6xHI6xH", data)
    assert (riff, size, wave) == (b"RIFF", len(data) - 8, b"WAVEfmt ")
    assert (channels, rate, bits) == (1, 24_000, 16)
    assert len(data) == 44 + 2 * 6 * 1920  # six characters of 80 ms
    assert any(data[44:])


async def test_utterance_can_be_copied_as_code(page: Tab) -> None:
    origin = "http://127.0.0.1:8000"
    options = json.dumps({"voice": "it's", "normalise": True, "format": {"codec": "opus"}})
    text = json.dumps("Say \"no\" - it's 5 o'clock.\n")
    tools = f"import('/tools.js').then((tools) => tools.%s({options}, {text}, '{origin}', %s))"
    for key in ("false", "true"):
        python = await page.evaluate(tools % ("asPython", key))
        compile(python, "copied", "exec")
        assert ("VOXGATE_API_KEY" in python) is (key == "true")
        assert "ws://127.0.0.1:8000" in python
        assert "normalise=True" in python
        curl = await page.evaluate(tools % ("asCurl", key))
        assert f"curl {origin}/v1/audio/speech" in curl
        assert ("VOXGATE_API_KEY" in curl) is (key == "true")
        assert "it'\\''s" in curl


async def test_text_is_written_at_the_chosen_pace(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('writing-pace').value = 40")
    await page.evaluate("document.getElementById('demo').click()")
    await page.until("voxgate.page.sent.length > 100")
    await page.press("Escape")
    fragments = [message["text"] for message in gateway.received if message["type"] == "text"]
    assert max(map(len, fragments)) <= 6
    await page.until("!document.getElementById('stopped').hidden")
    before = await page.evaluate("document.getElementById('text').value")
    await page.until("performance.now() - voxgate.page.changedAt > 300")
    assert await page.evaluate("document.getElementById('text').value") == before
