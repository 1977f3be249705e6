"""ElevenLabs over WebSockets: `multi-stream-input` with several contexts per socket, `stream-input` with one.

A context is an utterance that starts with its first text that is not blank. `close_context` after a `flush` finishes
it; with unflushed text, or repeated, it stops the context at once, which is how agent frameworks interrupt.
docs/service_protocols.md has all rules.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import BadMessage, EmptyText, UnknownVoice, UnsupportedFormat, UnsupportedOption
from voxgate.pipeline.interface import MarkupDialect

from ...errors import UtteranceEnded
from ...messages.client import End, Flush, Interrupt, Start, Text
from ...messages.connection import CloseCode
from ...messages.parsing import parse_json
from ...messages.server import (
    AcceptedMessage,
    DoneMessage,
    ErrorMessage,
    InterruptedMessage,
    ServerMessage,
    WordsMessage,
)
from ...messages.start_fields import DEFAULT_MARKUP, FormatFields
from ...session.outbox import AudioPacket
from ...session.protocol import (
    MESSAGE_ERROR_CODES,
    Disconnect,
    ProtocolAction,
    ProtocolOutput,
    SendPayload,
    WireProtocol,
)
from ...session.utterance_factory import UtteranceFactory
from ..catalog import NATURAL_SPEED, language_from_code
from ..endpoint import EndpointRequest, FirstMessageKey, WebSocketEndpoint, query_number
from ..payloads import base64_text, json_message
from ..reply import Reply, ReportableError, json_reply, retry_headers, status_of
from .character_alignment import CharacterAlignment, CharacterTimes
from .fields import ElevenLabsMessage, VoiceSettings, dictionary_names

DEFAULT_FORMAT = "mp3_44100_128"
INACTIVITY_S = 20.0
"""Seconds without use after which a context ends, unless `inactivity_timeout` says otherwise."""
INACTIVITY_LIMIT_S = 180.0
"""Largest `inactivity_timeout`, in seconds."""

_MP3 = ((22050, (32,)), (24000, (48,)), (44100, (32, 64, 96, 128, 192)))

_PCM_RATES_HZ = (8000, 16000, 22050, 24000, 32000, 44100, 48000)

FORMATS: Mapping[str, OutputFormat] = {
    **{f"pcm_{rate}": OutputFormat("pcm", rate) for rate in _PCM_RATES_HZ},
    **{f"wav_{rate}": OutputFormat("wav", rate) for rate in _PCM_RATES_HZ},
    "ulaw_8000": OutputFormat("mulaw", 8000),
    "alaw_8000": OutputFormat("alaw", 8000),
    **{f"opus_48000_{kbit}": OutputFormat("ogg_opus", 48000, 1000 * kbit) for kbit in (32, 64, 96, 128, 192)},
    **{f"mp3_{rate}_{kbit}": OutputFormat("mp3", rate, 1000 * kbit) for rate, kbits in _MP3 for kbit in kbits},
}
"""Output formats by `output_format`."""

_ERROR_CODES = {
    "at_capacity": "too_many_concurrent_requests",
    "key_limit": "too_many_concurrent_requests",
    "rate_limited": "rate_limit_exceeded",
    "unauthorized": "invalid_api_key",
    "unknown_voice": "voice_not_found",
    "unsupported_format": "output_format_not_allowed",
    "too_many_utterances": "max_active_conversations",
    "text_too_long": "max_character_limit_exceeded",
}
"""ElevenLabs' error codes by native code; other errors keep the native code."""
_STATUS = {UnknownVoice.code: HTTPStatus.NOT_FOUND}


@dataclass(frozen=True, slots=True)
class ElevenLabsOptions:
    """The options of a URL, which all contexts of its socket share."""

    voice: str
    language: str
    audio_format: OutputFormat
    auto_mode: bool = False
    """Every text message is a complete sentence."""
    absolute_times: bool = False
    """Alignments count from the start of the context instead of from the end of the previous alignment."""
    inactivity_s: float = INACTIVITY_S
    seed: int | None = None

    def start(
        self,
        utterance: str,
        *,
        words: bool = True,
        pacing: Literal["playback", "none"] = "playback",
        rate: float = NATURAL_SPEED,
        dictionaries: tuple[str, ...] = (),
    ) -> Start:
        """The message that starts `utterance`."""
        return Start(
            type="start",
            utterance=utterance,
            voice=self.voice,
            language=self.language,
            format=FormatFields.of(self.audio_format),
            seed=self.seed,
            words=words,
            pacing=pacing,
            markup=(*DEFAULT_MARKUP, MarkupDialect.ELEVENLABS),
            rate=rate,
            dictionaries=dictionaries,
        )


def read_options(request: EndpointRequest, factory: UtteranceFactory) -> ElevenLabsOptions:
    """The options in path and query.

    Raises UnknownVoice, UnknownLanguage, UnsupportedFormat, BadMessage, EngineNotReady.
    """
    query = request.query
    voice = factory.find_voice(request.path["voice"])
    name = query.get("output_format", DEFAULT_FORMAT)
    if (audio_format := FORMATS.get(name)) is None:
        raise UnsupportedFormat(f"output_format must be one of {', '.join(FORMATS)}", param="output_format")
    return ElevenLabsOptions(
        voice,
        language_from_code(query.get("language_code"), factory.voices[voice].languages),
        audio_format,
        auto_mode=query.get("auto_mode") == "true",
        absolute_times=query.get("sync_alignment") == "true",
        inactivity_s=min(query_number(query, "inactivity_timeout", INACTIVITY_S), INACTIVITY_LIMIT_S),
        seed=int(query_number(query, "seed", 0)) if "seed" in query else None,
    )


def error_code(error: ReportableError) -> str:
    """ElevenLabs' code of an error, or the native one."""
    return _ERROR_CODES.get(error.code, error.code)


def refuse(error: ReportableError) -> Reply:
    """The response that reports `error` in ElevenLabs' shape."""
    status = status_of(error, _STATUS)
    detail = {"type": status.name.lower(), "code": error.code, "status": error_code(error), "message": error.message}
    return json_reply(status, {"detail": detail}, retry_headers(error.retry_after_ms))


class ElevenLabsContext:
    """One context. `name` is its utterance; `id` its id in messages, None on a socket with a single utterance."""

    def __init__(self, id: str | None, name: str, options: ElevenLabsOptions, now_s: float) -> None:
        self.id = id
        self.name = name
        self.alignment = CharacterAlignment(absolute=options.absolute_times)
        self.rate = NATURAL_SPEED
        """Rate of speech, from the voice settings."""
        self.active_s = now_s
        """Time of the client's last message or of the last audio sent, in seconds."""
        self.started = False
        """Whether the utterance was requested."""
        self.accepted = False
        """Whether the session accepted the utterance."""
        self.pending_text = ""
        """Text of the current message, removed from the alignment if the session refuses it."""
        self.unflushed = False
        """Whether there is text after the last flush."""
        self.closing = False
        """Whether the client ended the context."""
        self.dictionaries: tuple[str, ...] = ()
        """Dictionaries of its pronunciations."""

    def encode(self, **fields: Any) -> str:
        """A message about this context."""
        return json.dumps(fields if self.id is None else {**fields, "contextId": self.id})

    def message(self, **fields: Any) -> SendPayload:
        return SendPayload(self.encode(**fields))


def find_key(payload: str) -> str | None:
    """The API key in the first message of a client; None without one."""
    try:
        return parse_json(ElevenLabsMessage, payload).xi_api_key
    except BadMessage:
        return None


def error_fields(code: str, message: str) -> dict[str, Any]:
    """The fields that report an error; `code` is ElevenLabs'."""
    return {"message": message, "error": code, "code": CloseCode.POLICY.value}


def audio_fields(payload: bytes, characters: CharacterTimes | None) -> dict[str, Any]:
    """The fields that carry audio and the times of the characters spoken in it."""
    audio = base64_text(payload) if payload else None
    if characters is None:
        return {"audio": audio, "isFinal": None, "alignment": None, "normalizedAlignment": None}
    chars, starts_ms, durations_ms = characters
    alignment = {"chars": chars, "charStartTimesMs": starts_ms, "charDurationsMs": durations_ms}
    return {"audio": audio, "isFinal": None, "alignment": alignment, "normalizedAlignment": alignment}


MAX_CONTEXTS = 5
"""Contexts of a socket at once, as in ElevenLabs' service."""
_DEFAULT_CONTEXT = "default"


class ElevenLabs(WireProtocol):
    """The behaviour of contexts, common to both kinds of socket."""

    name = "elevenlabs"
    reports_spoken_text = False
    clients_buffer = True

    def __init__(self, options: ElevenLabsOptions) -> None:
        self.voice = options.voice
        self._options = options
        self._contexts: dict[str, ElevenLabsContext] = {}
        """Contexts by the name of their utterance."""
        self._numbers = itertools.count(1)

    # Actions on utterances

    def _open(self, id: str | None, incoming: ElevenLabsMessage, now_s: float) -> ElevenLabsContext:
        context = ElevenLabsContext(id, f"context-{next(self._numbers)}", self._options, now_s)
        context.dictionaries = dictionary_names(incoming.pronunciation_dictionary_locators)
        self._contexts[context.name] = context
        return context

    def _configure(self, context: ElevenLabsContext, settings: VoiceSettings | None) -> Iterable[ProtocolOutput]:
        """Takes the voice settings of a context that has not begun to speak; ends it if they are not offered."""
        if context.started or settings is None:
            return
        try:
            context.rate = settings.rate
        except UnsupportedOption as refused:
            code = error_code(refused)
            yield context.message(**error_fields(code, refused.message))
            yield from self._finish(context, code)

    def _speak(self, context: ElevenLabsContext, text: str) -> Iterable[ProtocolAction]:
        if not context.started and not text.strip():
            return
        if not context.started:
            context.started = True
            yield self._options.start(context.name, rate=context.rate, dictionaries=context.dictionaries)
        if self._options.auto_mode and not text[-1].isspace():
            text += " "  # separates the sentence from the next one
        context.unflushed = context.unflushed or not text.isspace()
        context.pending_text = text
        context.alignment.add_text(text)
        yield Text(type="text", utterance=context.name, text=text)
        if self._options.auto_mode:
            yield Flush(type="flush", utterance=context.name)

    def _flush(self, context: ElevenLabsContext) -> Iterable[ProtocolAction]:
        context.unflushed = False
        if context.started:
            yield Flush(type="flush", utterance=context.name)

    def _end(self, context: ElevenLabsContext) -> Iterable[ProtocolAction]:
        context.closing = True
        if context.started:
            yield End(type="end", utterance=context.name)
        else:
            yield from self._finish(context)

    def _stop(self, context: ElevenLabsContext) -> Iterable[ProtocolAction]:
        if context.started:
            yield Interrupt(type="interrupt", utterance=context.name)
        else:
            yield from self._finish(context)

    # Messages of the session

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        if isinstance(message, ErrorMessage) and message.utterance is None:
            return (json_message(**error_fields(error_code(message), message.message)),)
        context = self._contexts.get(getattr(message, "utterance", None) or "")
        if context is None:
            return ()
        match message:
            case AcceptedMessage():
                context.accepted = True
            case WordsMessage():
                context.alignment.add_words(message.words)
            case DoneMessage():
                rest = context.alignment.take_rest()
                last = () if rest is None else (context.message(**audio_fields(b"", rest)),)
                return (*last, *self._finish(context))
            case InterruptedMessage():
                return tuple(self._finish(context))
            case ErrorMessage():
                return tuple(self._on_error(context, message))
        return ()

    def _on_error(self, context: ElevenLabsContext, error: ErrorMessage) -> Iterable[ProtocolOutput]:
        code = "" if error.code == EmptyText.code else error_code(error)  # an empty context is valid here
        if code:
            yield context.message(**error_fields(code, error.message))
        if error.code not in MESSAGE_ERROR_CODES or not context.accepted:
            yield from self._finish(context, code)
        elif context.pending_text:
            context.alignment.retract(context.pending_text)
            context.pending_text = ""

    def _finish(self, context: ElevenLabsContext, error: str = "") -> Iterable[ProtocolOutput]:
        """Forgets the context and sends its end mark, which frameworks wait for also after an error.

        `error` is the code of the error that ended it.
        """
        del error
        del self._contexts[context.name]
        yield context.message(isFinal=True) if context.id is not None else context.message(audio=None, isFinal=True)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | None:
        context = self._contexts.get(utterance)
        if context is None:
            return None
        context.active_s = now_s
        header = packet.header
        rate_hz = self._options.audio_format.sample_rate_hz
        if header.last:
            characters = context.alignment.take_rest()
        else:
            characters = context.alignment.take_until((header.pts + header.samples) * 1000 / rate_hz)
        if not packet.payload and characters is None:
            return None
        return context.encode(**audio_fields(packet.payload, characters))

    # Timers

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        """Ends contexts that were not used for `inactivity_s`, so that they hold no talker slots."""
        idle = [each for each in self._contexts.values() if not each.closing and self._idle_s(each) <= now_s]
        return tuple(action for context in idle for action in self._time_out(context))

    def next_wake_s(self) -> float:
        return min((self._idle_s(each) for each in self._contexts.values() if not each.closing), default=math.inf)

    def _idle_s(self, context: ElevenLabsContext) -> float:
        return context.active_s + self._options.inactivity_s

    def _time_out(self, context: ElevenLabsContext) -> Iterable[ProtocolAction]:
        message = f"no text for {self._options.inactivity_s:g} seconds"
        code = "input_timeout_exceeded"
        yield context.message(**error_fields(code, message))
        if context.started:
            yield Interrupt(type="interrupt", utterance=context.name)
        yield from self._finish(context, code)


class MultiStream(ElevenLabs):
    """`multi-stream-input`: several contexts, named by the client."""

    def __init__(self, options: ElevenLabsOptions) -> None:
        super().__init__(options)
        self._closing = False

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        incoming = parse_json(ElevenLabsMessage, payload)
        if self._closing:
            return ()
        if incoming.close_socket:
            return tuple(self._close())
        id = incoming.context_id or (_DEFAULT_CONTEXT if incoming.text else None)
        context = next((each for each in self._contexts.values() if each.id == id and id is not None), None)
        if context is None:
            return tuple(self._begin(id, incoming, now_s))
        context.active_s, context.pending_text = now_s, ""
        return tuple(self._apply(context, incoming))

    def _begin(self, id: str | None, incoming: ElevenLabsMessage, now_s: float) -> Iterable[ProtocolAction]:
        if id is None or not incoming.text:
            return  # a keep-alive message, or a late message for an ended context
        if len(self._contexts) >= MAX_CONTEXTS:
            refused = ElevenLabsContext(id, "", self._options, now_s)
            message = f"a socket may have at most {MAX_CONTEXTS} contexts"
            yield refused.message(**error_fields("max_active_conversations", message))
            yield refused.message(isFinal=True)
            return
        yield from self._apply(self._open(id, incoming, now_s), incoming)

    def _apply(self, context: ElevenLabsContext, incoming: ElevenLabsMessage) -> Iterable[ProtocolAction]:
        if context.closing:
            if incoming.text and not incoming.text.isspace():
                yield context.message(**error_fields(UtteranceEnded.code, "context_id names a context that is closed"))
            if incoming.close_context:
                yield from self._stop(context)
            return
        if refusal := tuple(self._configure(context, incoming.voice_settings)):
            yield from refusal
            return
        if incoming.text:
            yield from self._speak(context, incoming.text)
        if incoming.flush:
            yield from self._flush(context)
        if incoming.close_context:
            yield from self._stop(context) if context.unflushed else self._end(context)

    def _close(self) -> Iterable[ProtocolAction]:
        self._closing = True
        for context in [each for each in self._contexts.values() if not each.closing]:
            yield from self._end(context)
        if not self._contexts:
            yield Disconnect(CloseCode.NORMAL)

    def _finish(self, context: ElevenLabsContext, error: str = "") -> Iterable[ProtocolOutput]:
        yield from super()._finish(context, error)
        if self._closing and not self._contexts:
            yield Disconnect(CloseCode.NORMAL)


class SingleStream(ElevenLabs):
    """`stream-input`: one utterance; an empty text ends it, and its end closes the socket."""

    def __init__(self, options: ElevenLabsOptions) -> None:
        super().__init__(options)
        self._context: ElevenLabsContext | None = None
        self._ended = False

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        incoming = parse_json(ElevenLabsMessage, payload)
        if self._ended:
            return ()
        context = self._context = self._context or self._open(None, incoming, now_s)
        context.active_s, context.pending_text = now_s, ""
        return tuple(self._apply(context, incoming))

    def _apply(self, context: ElevenLabsContext, incoming: ElevenLabsMessage) -> Iterable[ProtocolAction]:
        if refusal := tuple(self._configure(context, incoming.voice_settings)):
            yield from refusal
            return
        if incoming.text:
            yield from self._speak(context, incoming.text)
        if incoming.flush:
            yield from self._flush(context)
        if incoming.text == "":
            yield from self._end(context)

    def _finish(self, context: ElevenLabsContext, error: str = "") -> Iterable[ProtocolOutput]:
        self._ended = True
        yield from super()._finish(context, error)
        yield Disconnect(CloseCode.POLICY if error else CloseCode.NORMAL, error)


_PATH = "/v1/text-to-speech/{voice}"
_FIRST_MESSAGE_KEY = FirstMessageKey(find_key, lambda error: json.dumps(error_fields(error_code(error), error.message)))
ENDPOINTS = (
    WebSocketEndpoint(
        f"{_PATH}/multi-stream-input",
        lambda request, factory: MultiStream(read_options(request, factory)),
        refuse,
        _FIRST_MESSAGE_KEY,
    ),
    WebSocketEndpoint(
        f"{_PATH}/stream-input",
        lambda request, factory: SingleStream(read_options(request, factory)),
        refuse,
        _FIRST_MESSAGE_KEY,
    ),
)
