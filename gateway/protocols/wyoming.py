"""The Wyoming protocol of Home Assistant: events in, one utterance after another out, as PCM.

`synthesize` speaks a whole text; between `synthesize-start` and `synthesize-stop` text is spoken as it arrives. The
library `wyoming` defines the events; `transport/wyoming_listener.py` reads and writes them.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import BadMessage, EmptyText, VoxgateError
from voxgate.pipeline.interface import VoiceInfo
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from ..messages.client import End, Start, Text
from ..messages.connection import CloseCode
from ..messages.parsing import first_error, quoted_path
from ..messages.server import DoneMessage, ErrorMessage, InterruptedMessage, ServerMessage, StartedMessage
from ..messages.start_fields import FormatFields
from ..session.outbox import AudioPacket
from ..session.protocol import Disconnect, ProtocolAction, ProtocolOutput, SendPayload, WireProtocol
from ..session.utterance_factory import UtteranceFactory
from .catalog import LANGUAGES, language_from_code

IDLE_S = 60.0
"""Seconds without a message and without speech after which a connection is closed."""
AUDIO_FORMAT = OutputFormat("pcm", 24_000)
_SAMPLE_BYTES, _CHANNELS = 2, 1
_ATTRIBUTION = Attribution("voxgate", "")


@dataclass(slots=True)
class _Synthesis:
    """The speech under way."""

    utterance: str
    streaming: bool
    """Whether its text comes in pieces."""
    ended: bool = False
    """Whether its text has ended."""
    samples: int = 0
    """Samples sent."""


class Wyoming(WireProtocol):
    """One connection. Its messages are JSON texts of an event's type and data."""

    name = "wyoming"
    reports_spoken_text = False
    clients_buffer = True

    def __init__(self, factory: UtteranceFactory) -> None:
        self._factory = factory
        self._numbers = itertools.count(1)
        self._current: _Synthesis | None = None
        self._active_s: float | None = None
        """Time of the last message or of the end of the last speech; None before the first `tick`."""
        self._described: tuple[tuple[VoiceInfo, ...], bytes] = ((), b"")
        """The voices that were described last, and the event that does, which takes milliseconds to write."""

    # From the client

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        self._active_s = now_s
        fields = json.loads(payload)
        try:
            return tuple(self._apply(Event.from_dict(fields)))
        except ValidationError as invalid:
            reason, path, _ = first_error(invalid)
            error: object = f"{quoted_path(path)}: {reason}"
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as wrong:
            error = wrong
        raise BadMessage(f"the event {fields['type'][:40]!r} has a missing or wrong field: {error}")

    def _apply(self, event: Event) -> Iterable[ProtocolAction]:
        if Describe.is_type(event.type):
            yield SendPayload(self._describe())
        elif Ping.is_type(event.type):
            yield SendPayload(encode_event(Pong(text=Ping.from_event(event).text)))
        elif Synthesize.is_type(event.type):
            yield from self._speak(Synthesize.from_event(event))
        elif SynthesizeStart.is_type(event.type):
            yield self._start(SynthesizeStart.from_event(event).voice, streaming=True)
        elif SynthesizeChunk.is_type(event.type):
            yield Text(type="text", utterance=self._open_text().utterance, text=SynthesizeChunk.from_event(event).text)
        elif SynthesizeStop.is_type(event.type):
            synthesis = self._open_text()
            synthesis.ended = True
            yield End(type="end", utterance=synthesis.utterance)
        # Servers ignore events that are not for them.

    def _speak(self, request: Synthesize) -> Iterable[ProtocolAction]:
        if self._current is not None and self._current.streaming:
            return  # Home Assistant sends the whole text once more, for servers that do not take it in pieces
        start = self._start(request.voice, streaming=False)
        yield start
        yield Text(type="text", utterance=start.utterance, text=request.text)
        yield End(type="end", utterance=start.utterance)

    def _start(self, voice: SynthesizeVoice | None, *, streaming: bool) -> Start:
        """Raises BadMessage while speech is under way, UnknownVoice, UnknownLanguage, EngineNotReady."""
        if self._current is not None:
            raise BadMessage("speech is under way: a connection speaks one text after another")
        wanted = voice or SynthesizeVoice()
        name = self._factory.find_voice(wanted.name or self._factory.default_voice)
        code = None if wanted.language is None else wanted.language.replace("_", "-")
        language = language_from_code(code, self._factory.voices[name].languages)
        self._current = _Synthesis(f"speech-{next(self._numbers)}", streaming)
        return Start(
            type="start",
            utterance=self._current.utterance,
            voice=name,
            language=language,
            format=FormatFields.of(AUDIO_FORMAT),
        )

    def _open_text(self) -> _Synthesis:
        """The speech whose text comes in pieces. Raises BadMessage."""
        if self._current is None or not self._current.streaming or self._current.ended:
            raise BadMessage("text must come between synthesize-start and synthesize-stop")
        return self._current

    def _describe(self) -> bytes:
        voices = tuple(self._factory.voices.values())
        if not self._described[1] or voices != self._described[0]:
            self._described = voices, encode_event(_info(voices))
        return self._described[1]

    # To the client

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        match message:
            case StartedMessage():
                rate = AUDIO_FORMAT.sample_rate_hz
                return (SendPayload(encode_event(AudioStart(rate, _SAMPLE_BYTES, _CHANNELS, timestamp=0))),)
            case DoneMessage() | InterruptedMessage():
                return self._finish()
            case ErrorMessage(code=EmptyText.code):
                return self._finish()  # a language model may have nothing to say
            case ErrorMessage():
                # Clients wait for audio after an error, but not on a closed connection.
                return (SendPayload(encode_error(message)), Disconnect(CloseCode.POLICY))
        return ()

    def _finish(self) -> tuple[ProtocolOutput, ...]:
        synthesis, self._current = self._current, None
        self._active_s = None
        samples = synthesis.samples if synthesis is not None else 0
        stop: list[Eventable] = [AudioStop(timestamp=samples * 1000 // AUDIO_FORMAT.sample_rate_hz)]
        if synthesis is not None and synthesis.streaming:
            stop.append(SynthesizeStopped())
        return tuple(SendPayload(encode_event(event)) for event in stop)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del utterance, now_s
        if self._current is None or not packet.payload:
            return None
        timestamp = self._current.samples * 1000 // AUDIO_FORMAT.sample_rate_hz
        self._current.samples += packet.header.samples
        chunk = AudioChunk(AUDIO_FORMAT.sample_rate_hz, _SAMPLE_BYTES, _CHANNELS, packet.payload, timestamp)
        return encode_event(chunk)

    # Timers

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        if self._active_s is None:
            self._active_s = now_s
        elif now_s >= self.next_wake_s():
            return (Disconnect(CloseCode.NORMAL, "idle"),)
        return ()

    def next_wake_s(self) -> float:
        if self._current is not None:
            return math.inf
        return -math.inf if self._active_s is None else self._active_s + IDLE_S


def _info(offered: Iterable[VoiceInfo]) -> Info:
    codes = {name: code for code, name in LANGUAGES.items()}
    voices = [
        TtsVoice(
            name=voice.name,
            attribution=_ATTRIBUTION,
            installed=True,
            description=voice.display or voice.name,
            version=None,
            languages=sorted(codes[language] for language in voice.languages if language in codes),
        )
        for voice in offered
    ]
    program = TtsProgram(
        name="voxgate",
        attribution=_ATTRIBUTION,
        installed=True,
        description="Voxgate: speech while the text arrives",
        version=None,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def encode_event(event: Eventable) -> bytes:
    """An event as bytes."""
    output = io.BytesIO()
    write_event(event.event(), output)
    return output.getvalue()


def encode_error(error: VoxgateError | ErrorMessage) -> bytes:
    """The event that reports an error; its code is the native one."""
    return encode_event(Error(text=error.message, code=error.code))


def encode_message(event: Event) -> str:
    """An event of a client as `Wyoming.receive` takes it."""
    fields: dict[str, Any] = {"type": event.type, "data": event.data}
    return json.dumps(fields)
