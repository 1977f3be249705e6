"""What protocols in JSON write alike: text messages, server-sent events, audio as text."""

from __future__ import annotations

import base64
import json
from typing import Any

from ..session.protocol import SendPayload


def json_message(**fields: Any) -> SendPayload:
    """A text message with these fields as JSON."""
    return SendPayload(json.dumps(fields))


def server_sent_event(fields: dict[str, Any], name: str | None = None) -> bytes:
    """One event of a stream of server-sent events, with `fields` as its data."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + json.dumps(fields).encode() + b"\n\n"


def base64_text(payload: bytes) -> str:
    """Audio in a JSON string."""
    return base64.b64encode(payload).decode("ascii")
