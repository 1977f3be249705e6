"""Every dialect of the registry under fuzz: examples of what it takes, and a session to give them to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.packets import FakeEncoder
from fakes.tone import Script, ToneSynthesizer
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.admission import Admission
from voxgate.gateway.dialects.endpoint import Endpoint, Handshake
from voxgate.gateway.dialects.registry import ENDPOINTS
from voxgate.gateway.effects import Retire, SendMessage
from voxgate.gateway.opening import Offer
from voxgate.gateway.session import Session
from voxgate.gateway.settings import Settings
from voxgate.gateway.utterance import Utterance
from voxgate.pipeline.speech import EngineState

DOCS = Path(__file__).parents[2] / "docs"
EFFECTS_AT_MOST = 1000

Messages = list[dict[str, Any]]

NATIVE: Messages = [
    {"type": "start", "utterance": "a", "format": {"codec": "pcm", "sample_rate": 24000, "packet_ms": 80}},
    {"type": "start", "utterance": "b", "voice": "ada", "seed": 7, "words": True, "pacing": "none",
     "sampling": {"temperature": 0.5, "top_k": 3, "top_p": 0.9}},
    {"type": "start", "utterance": "c", "language": "english", "instructions": "Whisper."},
    {"type": "text", "utterance": "a", "text": "Hello there."},
    {"type": "text", "utterance": "b", "text": "\u0301\u202e\U0001f600"},
    {"type": "flush", "utterance": "a"},
    {"type": "end", "utterance": "a"},
    {"type": "interrupt", "utterance": "b", "played_ms": 200},
    {"type": "ack", "utterance": "a", "played_samples": 1920},
    {"type": "ping", "id": "x"},
]  # fmt: skip
ELEVENLABS: Messages = [
    {"text": " ", "context_id": "a", "voice_settings": {"stability": 0.5}, "xi_api_key": "x",
     "generation_config": {"chunk_length_schedule": [120, 160]}},
    {"text": "Hello there. ", "context_id": "a", "flush": True},
    {"text": "And more ", "try_trigger_generation": True},
    {"text": "", "context_id": "a"},
    {"text": ""},
    {"context_id": "a", "flush": True},
    {"context_id": "a", "close_context": True},
    {"context_id": "b", "text": "Another ", "close_context": False},
    {"close_socket": True},
]  # fmt: skip
DEEPGRAM: Messages = [
    {"type": "Speak", "text": "Hello there."},
    {"type": "Flush"},
    {"type": "Clear"},
    {"type": "Close"},
    {"type": "Interrupt", "playback_offset": {"type": "time_ms", "value": 200}},
    {"type": "Configure", "speed": 1.1},
]
EXAMPLES: dict[str, Messages] = {"speech": NATIVE, "text-to-speech": ELEVENLABS, "speak": DEEPGRAM}
"""By the part of a path that tells one dialect from another; what is new and not here is given all of them."""


@dataclass(frozen=True)
class Fuzzed:
    """One endpoint under fuzz; `open` makes a session at it."""

    name: str
    examples: Messages
    open: Callable[[], FuzzedSession]


def fuzzed_dialects() -> list[Fuzzed]:
    """One for every endpoint of the registry."""
    return [
        Fuzzed(endpoint.pattern, _examples(endpoint.pattern), lambda endpoint=endpoint: FuzzedSession(endpoint))
        for endpoint in ENDPOINTS
    ]


def _examples(pattern: str) -> Messages:
    known = [messages for part, messages in EXAMPLES.items() if part in pattern.split("/")]
    return known[0] if known else NATIVE + ELEVENLABS + DEEPGRAM


def documented_codes() -> frozenset[str]:
    """Every code in the documentation, in small letters: a single word in back quotes."""
    texts = [path.read_text("utf-8") for path in DOCS.glob("*.md")]
    return frozenset(code.lower() for text in texts for code in re.findall(r"`([\w-]+)`", text))


class FuzzedSession:
    """A session at `endpoint`, renewed whenever it closes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._synthesizer = ToneSynthesizer(Script(), slots=2, max_characters=2000)
        self._synthesizer._state = EngineState.READY  # starting it takes a loop
        self._admission = Admission(lambda: self._synthesizer.slots, 2, 3000)
        settings = Settings(starts_per_s=10**6, interrupts_per_s=10**6, messages_per_s=10**6)
        self._offer = Offer(settings, self._synthesizer, FakeEncoder)
        self._codes = documented_codes()
        self._renew()

    def _renew(self) -> None:
        handshake = Handshake({"voice": "ada"}, {"output_format": "pcm_24000", "sample_rate": "24000"})
        dialect = self._endpoint.open(handshake, self._offer)
        caller = Caller("k", KeyLimits())
        self._session = Session("s", caller, self._offer, self._admission, dialect, lambda: None)
        self._session.open()

    def take(self, payload: str | bytes, now_s: float) -> None:
        """Give it a message; this is what is timed."""
        self._session.receive(payload, now_s)

    def settle(self, now_s: float) -> str | None:
        """Take what it answers. Returns the first thing undocumented, None when all is well."""
        problem = None
        for _ in range(EFFECTS_AT_MOST):
            match self._session.next_effect(now_s):
                case None:
                    break
                case SendMessage(message=text):
                    problem = problem or self._undocumented(text)
                case Retire(utterance=utterance):
                    self._retire(utterance, now_s)
        else:
            problem = "effects without end"
        if self._session.closing:
            for utterance in self._session.lost():
                self._retire(utterance, now_s)
            self._renew()
        return problem

    def _undocumented(self, text: str | bytes) -> str | None:
        """Errors are told by `code` in a message of type error, or by a word in `error`."""
        if isinstance(text, bytes):
            return None
        message = json.loads(text)
        code = message.get("code") if str(message.get("type")).lower() == "error" else message.get("error")
        return None if code is None or code.lower() in self._codes else f"undocumented error {code!r}"

    def _retire(self, utterance: Utterance, now_s: float) -> None:
        if (speech := utterance.speech) is not None:
            self._synthesizer.open_speeches.pop(speech, None)  # type: ignore[call-overload]  # always a ToneSpeech
        if utterance.ticket is not None:
            self._admission.leave(utterance.ticket, now_s)
