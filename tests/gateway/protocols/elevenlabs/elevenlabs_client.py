"""ElevenLabs' addresses, and what a test looks at in their answers."""

from __future__ import annotations

import base64
from typing import Any

from fakes.gateway.websocket import FakeSocket

MULTI = "/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000"
SINGLE = "/v1/text-to-speech/ada/stream-input?output_format=pcm_24000"
TEXT = "The quick brown fox jumps over the lazy dog. "


def final(context: str, error: str | None = None) -> Any:
    return lambda m: m.get("contextId") == context and m.get("error") == error and (error or m.get("isFinal"))


def heard(socket: FakeSocket, context: str | None) -> bytes:
    return b"".join(
        base64.b64decode(m["audio"]) for m in socket.messages if m.get("audio") and m.get("contextId") == context
    )


def aligned(socket: FakeSocket, context: str | None) -> tuple[str, list[float]]:
    """Text and start times of a context; relative clocks are added up as Pipecat does."""
    text, starts, clock = "", [], 0.0
    for message in socket.messages:
        if message.get("contextId") == context and (alignment := message.get("alignment")):
            text += "".join(alignment["chars"])
            starts += [clock + start for start in alignment["charStartTimesMs"]]
            clock += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
            assert message["normalizedAlignment"] == alignment
    return text, starts
