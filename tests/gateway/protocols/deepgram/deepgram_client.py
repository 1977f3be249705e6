"""How a test speaks Deepgram's protocols, and what it looks at."""

from __future__ import annotations

import json

import pytest
from fakes.gateway.websocket import FakeSocket

V1 = "/v1/speak?model=ada&encoding=linear16&sample_rate=24000"
V2 = "/v2/speak?model=ada&encoding=linear16&sample_rate=24000&mip_opt_out=false"
TEXT = "The quick brown fox jumps over the lazy dog."
VERSIONS = pytest.mark.parametrize("url", [V1, V2])


def kinds(socket: FakeSocket) -> list[str]:
    """Types in order; a run of audio is one."""
    named = ["audio" if isinstance(m, bytes) else json.loads(m)["type"] for m in socket.sent]
    return [kind for i, kind in enumerate(named) if i == 0 or kind != "audio" or named[i - 1] != "audio"]


def heard(socket: FakeSocket) -> bytes:
    return b"".join(m for m in socket.sent if isinstance(m, bytes))


def speak(socket: FakeSocket, text: str = TEXT, *, flush: bool = True) -> None:
    for word in text.split(" "):
        socket.put(type="Speak", text=word + " ")
    if flush:
        socket.put(type="Flush")
