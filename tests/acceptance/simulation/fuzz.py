"""Fuzzes the message parsers: valid messages with mutated structure, values and bytes, for every WebSocket endpoint."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.protocols.endpoint import EndpointRequest, WebSocketEndpoint
from voxgate.gateway.protocols.registry import WEBSOCKET_ENDPOINTS
from voxgate.gateway.session.admission import AdmissionQueue
from voxgate.gateway.session.effects import CloseSpeech, SendMessage
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.gateway.session.utterance_factory import UtteranceFactory
from voxgate.gateway.settings import Settings
from voxgate.pipeline.interface import EngineState

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**53, 2**64, 10**400, 1e308, -0.0, "", " ", "\x00", "\ud800", "\U0010ffff", "é" * 200,
    [], {}, [[]], {"a": {"b": {}}}, ["text"] * 50, "x" * 5000,
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "null", "[]", "{}", "0", '"', "{", "NaN", '{"type":NaN}', '{"type":"text","type":"end"}', "[" * 500,
    '{"a":' * 200, "\x00", "\u2028", '{"type":"\\ud800"}', "true", "1e999", '{"type":1e999}', "\ufeff{}",
)  # fmt: skip


def mutated(chance: random.Random, examples: list[dict[str, Any]]) -> str | bytes:
    """A valid message, or one damaged in one of many ways."""
    message = dict(chance.choice(examples))
    match chance.randrange(10):
        case 0:
            return json.dumps(message)
        case 1:
            return chance.choice(ODD_TEXTS)
        case 2 | 3:
            return json.dumps(_with_changed_field(chance, message))
        case 4:
            message.pop(chance.choice(list(message)))
            return json.dumps(message)
        case 5:
            message[_odd_field_name(chance)] = chance.choice(ODD_VALUES)
            return json.dumps(message)
        case 6:
            return json.dumps([message] * chance.randrange(3))
        case 7:
            return json.dumps(message)[: chance.randrange(60)]
        case 8:
            return _with_changed_letters(chance, json.dumps(message, ensure_ascii=False))
        case _:
            return chance.randbytes(chance.randrange(40)) if chance.random() < 0.1 else json.dumps(message) + "x"


def _with_changed_field(chance: random.Random, message: dict[str, Any]) -> dict[str, Any]:
    name = chance.choice(list(message))
    if isinstance(message[name], dict) and message[name] and chance.random() < 0.7:
        return message | {name: _with_changed_field(chance, message[name])}
    return message | {name: chance.choice(ODD_VALUES)}


def _odd_field_name(chance: random.Random) -> str:
    return chance.choice(["", "Type", "__proto__", "x" * 300, "utterance ", "\x00", "\ud800"])


def _with_changed_letters(chance: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(letters))
        match chance.randrange(3):
            case 0:
                letters[at] = chr(chance.choice([0, 10, 34, 92, 123, 0x7F, 0x202E, 0x1F600]))
            case 1:
                letters.insert(at, chance.choice('"{}[]:,\\'))
            case 2:
                letters[at] = ""
    return "".join(letters)


DOCS = Path(__file__).parents[3] / "docs"
MAX_EFFECTS = 1000

Messages = list[dict[str, Any]]

NATIVE: Messages = [
    {"type": "start", "utterance": "a", "format": {"codec": "pcm", "sample_rate": 24000, "packet_ms": 80}},
    {"type": "start", "utterance": "b", "voice": "ada", "seed": 7, "words": True, "visemes": True, "pacing": "none",
     "sampling": {"temperature": 0.5, "top_k": 3, "top_p": 0.9}},
    {"type": "start", "utterance": "c", "language": "english", "instructions": "Whisper."},
    {"type": "text", "utterance": "a", "text": "Hello there."},
    {"type": "text", "utterance": "b", "text": "\u0301\u202e\U0001f600"},
    {"type": "flush", "utterance": "a"},
    {"type": "end", "utterance": "a"},
    {"type": "interrupt", "utterance": "b", "played_ms": 200},
    {"type": "interrupt", "utterance": "a", "played_ms": 200, "hold_ms": 5000},
    {"type": "continue", "utterance": "a"},
    {"type": "retract", "utterance": "a", "characters": 6},
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
CARTESIA: Messages = [
    {"transcript": "Hello there.", "continue": True, "context_id": "a", "model_id": "sonic-3", "language": "en",
     "voice": {"mode": "id", "id": "ada"}, "add_timestamps": True, "max_buffer_delay_ms": 0,
     "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}},
    {"transcript": "And more.", "continue": True, "context_id": "a", "flush": True},
    {"transcript": "", "continue": False, "context_id": "a"},
    {"transcript": "All at once.", "context_id": "b", "voice": "ada",
     "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}},
    {"context_id": "b", "cancel": True},
]  # fmt: skip
NARI: Messages = [
    {"type": "request.start", "model": "m", "voice": "ada", "language": "English", "response_format": "pcm"},
    {"type": "input_text.append", "sequence": 0, "text": "Hello "},
    {"type": "input_text.append", "sequence": 1, "text": "there."},
    {"type": "input_text.end", "sequence": 2},
    {"type": "response.cancel"},
]
EXAMPLES: dict[str, Messages] = {
    "ws": NARI,
    "speech": NATIVE,
    "text-to-speech": ELEVENLABS,
    "speak": DEEPGRAM,
    "tts": CARTESIA,
}
"""Valid messages by a part of the path of the endpoint; an endpoint that is not here gets all of them."""


@dataclass(frozen=True)
class FuzzTarget:
    """One endpoint; `open` makes a session at it."""

    name: str
    examples: Messages
    open: Callable[[], FuzzedSession]


def fuzz_targets() -> list[FuzzTarget]:
    """One target for every endpoint of the registry."""
    return [
        FuzzTarget(endpoint.pattern, _examples(endpoint.pattern), lambda endpoint=endpoint: FuzzedSession(endpoint))
        for endpoint in WEBSOCKET_ENDPOINTS
    ]


def _examples(pattern: str) -> Messages:
    known = [messages for part, messages in EXAMPLES.items() if part in pattern.split("/")]
    return known[0] if known else NATIVE + ELEVENLABS + DEEPGRAM + CARTESIA + NARI


def documented_codes() -> frozenset[str]:
    """Every single word in back quotes in the documentation, in lower case: error codes are among them."""
    texts = [path.read_text("utf-8") for path in DOCS.glob("*.md")]
    return frozenset(code.lower() for text in texts for code in re.findall(r"`([\w-]+)`", text))


class FuzzedSession:
    """A session at `endpoint`, replaced whenever it closes."""

    def __init__(self, endpoint: WebSocketEndpoint) -> None:
        self._endpoint = endpoint
        self._synthesizer = ToneSynthesizer(ToneScript(), slots=2, max_characters=2000)
        self._synthesizer._state = EngineState.READY  # starting it takes a loop
        self._admission = AdmissionQueue(lambda: self._synthesizer.slots, 2, 3000)
        settings = Settings(starts_per_s=10**6, interrupts_per_s=10**6, messages_per_s=10**6)
        self._factory = UtteranceFactory(settings, self._synthesizer, FakeEncoder)
        self._codes = documented_codes()
        self._reconnect()

    def _reconnect(self) -> None:
        handshake = EndpointRequest({"voice": "ada"}, {"output_format": "pcm_24000", "sample_rate": "24000"})
        protocol = self._endpoint.open(handshake, self._factory)
        caller = Caller("k", KeyLimits())
        self._session = ServerSession("s", caller, self._factory, self._admission, protocol, lambda: None)
        self._session.open(0.0)

    def take(self, payload: str | bytes, now_s: float) -> None:
        """Receive a message: the call that is timed."""
        self._session.receive(payload, now_s)

    def settle(self, now_s: float) -> str | None:
        """Take the effects. Returns the first undocumented error, or None."""
        problem = None
        for _ in range(MAX_EFFECTS):
            match self._session.next_effect(now_s):
                case None:
                    break
                case SendMessage(message=text):
                    problem = problem or self._undocumented(text)
                case CloseSpeech(utterance=utterance):
                    self._close_speech(utterance, now_s)
        else:
            problem = f"more than {MAX_EFFECTS} effects"
        if self._session.closing:
            for utterance in self._session.on_disconnect():
                self._close_speech(utterance, now_s)
            self._reconnect()
        return problem

    def _undocumented(self, text: str | bytes) -> str | None:
        """An error has `code` in a message of type "error", or a word in `error`."""
        if isinstance(text, bytes):
            return None
        message = json.loads(text)
        code = message.get("code") if str(message.get("type")).lower() == "error" else message.get("error")
        return None if code is None or code.lower() in self._codes else f"undocumented error {code!r}"

    def _close_speech(self, utterance: ServerUtterance, now_s: float) -> None:
        if (speech := utterance.speech) is not None:
            self._synthesizer.open_speeches.pop(speech, None)  # type: ignore[call-overload]  # always a ToneSpeech
        if utterance.ticket is not None:
            self._admission.release(utterance.ticket, now_s)
