"""Messages to the client: encoding."""

from __future__ import annotations

import json

from voxgate.gateway.messages.connection import PongMessage
from voxgate.gateway.messages.server import ErrorMessage
from voxgate.pipeline.errors import TextTooLong


def test_encoded_message_leaves_out_absent_fields() -> None:
    error = ErrorMessage.of(TextTooLong(10, 12), utterance="a")
    assert json.loads(error.encode()) == {
        "type": "error",
        "code": "text_too_long",
        "message": "the text of an utterance must have at most 10 characters, got 12",
        "retryable": False,
        "utterance": "a",
        "limit": 10,
        "received": 12,
    }
    assert json.loads(PongMessage().encode()) == {"type": "pong"}
