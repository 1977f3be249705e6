"""ElevenLabs' messages: what a client may send, and the JSON of what it is told."""

from __future__ import annotations

import base64
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...pipeline.errors import BadMessage
from ..checked import checked
from ..effects import CloseCode
from .alignment import Alignment, Characters
from .dialect import Say
from .elevenlabs_options import SpeechOptions


class Incoming(BaseModel):
    """Any message of a client; what we do nothing with (voice settings, schedules) is let pass."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = None
    context_id: str | None = Field(None, max_length=128)
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    xi_api_key: str | None = Field(None, max_length=4096)


class Context:
    """`name` is the utterance's, `id` what its messages carry, None on a socket with one utterance."""

    def __init__(self, id: str | None, name: str, options: SpeechOptions, now_s: float) -> None:
        self.id = id
        self.name = name
        self.alignment = Alignment(absolute=options.absolute_times)
        self.active_s = now_s
        """When the client was last heard of, or audio was sent."""
        self.started = False
        """The utterance was asked for."""
        self.taken = False
        """The session has it."""
        self.offered = ""
        """The text of the message under way: taken back if the session refuses it."""
        self.unflushed = False
        self.closing = False

    def encode(self, **fields: Any) -> str:
        return json.dumps(fields if self.id is None else {**fields, "contextId": self.id})

    def tell(self, **fields: Any) -> Say:
        return Say(self.encode(**fields))


def find_key(payload: str) -> str | None:
    """The key in a first message."""
    try:
        return checked(Incoming, payload).xi_api_key
    except BadMessage:
        return None


def error_fields(slug: str, message: str) -> dict[str, Any]:
    """An error, by ElevenLabs' word for it."""
    return {"message": message, "error": slug, "code": CloseCode.POLICY.value}


def audio_fields(payload: bytes, characters: Characters | None) -> dict[str, Any]:
    """Audio and the text that is heard in it."""
    audio = base64.b64encode(payload).decode("ascii") if payload else None
    if characters is None:
        return {"audio": audio, "isFinal": None, "alignment": None, "normalizedAlignment": None}
    chars, starts_ms, durations_ms = characters
    alignment = {"chars": chars, "charStartTimesMs": starts_ms, "charDurationsMs": durations_ms}
    return {"audio": audio, "isFinal": None, "alignment": alignment, "normalizedAlignment": alignment}
