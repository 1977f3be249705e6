"""Helpers of the tests of the page."""

from __future__ import annotations

import json

from browser.chromium import Tab
from fakes.gateway.protocol_server import FakeGateway

PLAYED_S = "voxgate.speech.player.report.played / voxgate.speech.player.rate"
FINISHED = "voxgate.speech.last && !voxgate.speech.utterance && voxgate.speech.last.done"


async def choose(page: Tab, id: str, value: str) -> None:
    await page.evaluate(
        f"document.getElementById('{id}').value = {json.dumps(value)};"
        f"document.getElementById('{id}').dispatchEvent(new Event('change', {{ bubbles: true }}))"
    )


def sent_messages(gateway: FakeGateway) -> list[str]:
    """The messages that the page sent after `start`: fragments of text, and the types of the others."""
    kinds = ("text", "flush", "end")
    return [message.get("text", message["type"]) for message in gateway.received if message["type"] in kinds]
