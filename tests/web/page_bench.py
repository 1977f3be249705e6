"""What tests of the page ask of it, and of the gateway behind it."""

from __future__ import annotations

from browser.chromium import Tab
from fakes.gateway.protocol_server import FakeGateway

PLAYED_S = "voxgate.speech.player.report.played / voxgate.speech.player.rate"
FINISHED = "voxgate.speech.last && !voxgate.speech.utterance && voxgate.speech.last.done"


async def use(page: Tab, codec: str) -> None:
    await page.evaluate(
        f"document.getElementById('codec').value = '{codec}';"
        "document.getElementById('codec').dispatchEvent(new Event('change'))"
    )


def said(gateway: FakeGateway) -> list[str]:
    """What the page sent after `start`: each fragment of text, and the name of what is none."""
    kinds = ("text", "flush", "end")
    return [message.get("text", message["type"]) for message in gateway.received if message["type"] in kinds]
