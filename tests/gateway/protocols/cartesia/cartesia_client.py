"""How a test speaks Cartesia's protocol, and what it looks at."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from fakes.gateway.websocket import FakeSocket

URL = "/tts/websocket?cartesia_version=2025-04-16"
TEXT = "The quick brown fox jumps over the lazy dog. "
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


def request(context: str, transcript: str, **fields: Any) -> dict[str, Any]:
    """A message as Pipecat sends it."""
    return {
        "transcript": transcript,
        "continue": True,
        "context_id": context,
        "model_id": "sonic-3.6",
        "voice": {"mode": "id", "id": "ada"},
        "output_format": FORMAT,
        "add_timestamps": True,
        "use_normalized_timestamps": False,
        "language": "en",
        **fields,
    }


def of(kind: str, context: str) -> Callable[[dict[str, Any]], bool]:
    return lambda message: message["type"] == kind and message["context_id"] == context


def heard(socket: FakeSocket, context: str, flush_id: int | None = None) -> bytes:
    chunks = filter(of("chunk", context), socket.messages)
    return b"".join(base64.b64decode(m["data"]) for m in chunks if flush_id in (None, m["flush_id"]))


def words(socket: FakeSocket, context: str) -> list[tuple[str, float, float]]:
    found: list[tuple[str, float, float]] = []
    for message in filter(of("timestamps", context), socket.messages):
        times = message["word_timestamps"]
        found += zip(times["words"], times["start"], times["end"], strict=True)
    return found
