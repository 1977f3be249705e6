"""Every dialect whose messages are fuzzed: examples of what it takes, and a session to give them to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fakes.packets import FakeEncoder
from fakes.tone import Script, ToneSynthesizer
from voxgate.gateway.admission import Admission
from voxgate.gateway.effects import Retire, SendMessage
from voxgate.gateway.opening import Offer
from voxgate.gateway.session import Session
from voxgate.gateway.settings import Settings
from voxgate.pipeline.speech import EngineState

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
EFFECTS_AT_MOST = 1000


class Fuzzed(Protocol):
    """A session under fuzz."""

    def take(self, payload: str | bytes, now_s: float) -> None:
        """Give it a message; this is what is timed."""

    def settle(self, now_s: float) -> str | None:
        """Take what it answers. Returns the first thing undocumented, None when all is well."""


@dataclass(frozen=True)
class Dialect:
    name: str
    examples: list[dict[str, Any]]
    open: Callable[[], Fuzzed]


def documented_codes() -> frozenset[str]:
    """The error codes in the table of docs/protocol.md."""
    table = PROTOCOL.read_text("utf-8").partition("### Errors")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return frozenset(code for cell in cells for code in re.findall(r"`(\w+)`", cell))


class NativeSession:
    """The native session, renewed whenever it closes."""

    def __init__(self) -> None:
        self._synthesizer = ToneSynthesizer(Script(), slots=2, max_characters=2000)
        self._synthesizer._state = EngineState.READY  # starting it takes a loop
        self._admission = Admission(lambda: self._synthesizer.slots, 2, 3000)
        settings = Settings(starts_per_s=10**6, interrupts_per_s=10**6, messages_per_s=10**6)
        self._offer = Offer(settings, self._synthesizer, FakeEncoder)
        self._codes = documented_codes()
        self._renew()

    def _renew(self) -> None:
        self._session = Session("s", "k", self._offer, self._admission, lambda: None)
        self._session.open()

    def take(self, payload: str | bytes, now_s: float) -> None:
        self._session.receive(payload, now_s)

    def settle(self, now_s: float) -> str | None:
        problem = None
        for _ in range(EFFECTS_AT_MOST):
            match self._session.next_effect(now_s):
                case None:
                    break
                case SendMessage(text=text):
                    message = json.loads(text)
                    if message["type"] == "error" and message["code"] not in self._codes:
                        problem = f"undocumented error {message['code']!r}"
                case Retire(utterance=utterance):
                    self._retire(utterance, now_s)
        else:
            problem = "effects without end"
        if self._session.closing:
            for utterance in self._session.lost():
                self._retire(utterance, now_s)
            self._renew()
        return problem

    def _retire(self, utterance, now_s: float) -> None:
        self._synthesizer.open_speeches.pop(utterance.speech, None)
        if utterance.ticket is not None:
            self._admission.leave(utterance.ticket, now_s)


NATIVE = Dialect(
    "native",
    [
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
    ],
    NativeSession,
)  # fmt: skip

DIALECTS = [NATIVE]
