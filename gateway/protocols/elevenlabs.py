"""What an ElevenLabs client asks for in a URL, and how it is told that this is not offered."""
# TODO-DOC ElevenLabs' messages: what a client may send, and the JSON of what it is told.
# TODO-DOC ElevenLabs over WebSockets: `multi-stream-input`, many contexts on a socket, and `stream-input`, one
# TODO-DOC utterance. A context is an utterance that begins with its first text to be spoken. What ends it:
# TODO-DOC `close_context` once everything is flushed lets it finish; with text unflushed, or said twice, it stops at
# TODO-DOC once, which is how both agent frameworks interrupt. docs/service_protocols.md has the rules in full.

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import BadMessage, EmptyText, UnsupportedFormat, VoxgateError

from ..messages import (
    CloseCode,
    DoneMessage,
    End,
    ErrorMessage,
    Flush,
    FormatFields,
    Interrupt,
    InterruptedMessage,
    QueuedMessage,
    ServerMessage,
    Start,
    StartedMessage,
    Text,
    WordsMessage,
    parse_json,
)
from ..session.outbox import AudioPacket
from ..session.protocol import (
    MESSAGE_ERROR_CODES,
    Disconnect,
    ProtocolAction,
    ProtocolOutput,
    SendPayload,
    WireProtocol,
)
from ..session.utterance_factory import UtteranceFactory
from .catalog import language_from_code
from .character_alignment import CharacterAlignment, CharacterTimes
from .endpoint import EndpointRequest, FirstMessageKey, WebSocketEndpoint
from .reply import Reply, json_reply, retry_headers, status_of

DEFAULT_FORMAT = "mp3_44100_128"
INACTIVITY_S = 20.0
INACTIVITY_LIMIT_S = 180.0

_MP3 = ((22050, (32,)), (24000, (48,)), (44100, (32, 64, 96, 128, 192)))

FORMATS: Mapping[str, OutputFormat] = {
    **{f"pcm_{rate}": OutputFormat("pcm", rate) for rate in (8000, 16000, 22050, 24000, 32000, 44100, 48000)},
    "ulaw_8000": OutputFormat("mulaw", 8000),
    "alaw_8000": OutputFormat("alaw", 8000),
    **{f"opus_48000_{kbit}": OutputFormat("ogg_opus", 48000, 1000 * kbit) for kbit in (32, 64, 96, 128, 192)},
    **{f"mp3_{rate}_{kbit}": OutputFormat("mp3", rate, 1000 * kbit) for rate, kbits in _MP3 for kbit in kbits},
}
"""`output_format` by name."""

_SLUGS = {
    "at_capacity": "too_many_concurrent_requests",
    "key_limit": "too_many_concurrent_requests",
    "rate_limited": "rate_limit_exceeded",
    "unauthorized": "invalid_api_key",
    "unknown_voice": "voice_not_found",
    "unsupported_format": "output_format_not_allowed",
    "too_many_utterances": "max_active_conversations",
    "text_too_long": "max_character_limit_exceeded",
}


@dataclass(frozen=True, slots=True)
class ElevenLabsOptions:
    """One URL's: every context on its socket has the same."""

    voice: str
    language: str
    audio_format: OutputFormat
    auto_mode: bool = False
    """Every text is a sentence of its own."""
    absolute_times: bool = False
    inactivity_s: float = INACTIVITY_S
    seed: int | None = None

    def start(self, utterance: str, *, words: bool = True, pacing: Literal["playback", "none"] = "playback") -> Start:
        """The message that begins an utterance."""
        return Start(
            type="start",
            utterance=utterance,
            voice=self.voice,
            language=self.language,
            format=FormatFields.of(self.audio_format),
            seed=self.seed,
            words=words,
            pacing=pacing,
        )


def read_options(handshake: EndpointRequest, factory: UtteranceFactory) -> ElevenLabsOptions:
    """Raises UnknownVoice, UnknownLanguage, UnsupportedFormat, BadMessage, EngineNotReady."""
    query = handshake.query
    voice = factory.find_voice(handshake.path["voice"])
    name = query.get("output_format", DEFAULT_FORMAT)
    if (audio_format := FORMATS.get(name)) is None:
        raise UnsupportedFormat(f"output_format is one of {', '.join(FORMATS)}", param="output_format")
    return ElevenLabsOptions(
        voice,
        language_from_code(query.get("language_code"), factory.synthesizer.voices[voice].languages),
        audio_format,
        auto_mode=query.get("auto_mode") == "true",
        absolute_times=query.get("sync_alignment") == "true",
        inactivity_s=min(_number(query, "inactivity_timeout", INACTIVITY_S), INACTIVITY_LIMIT_S),
        seed=int(_number(query, "seed", 0)) if "seed" in query else None,
    )


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name, str(default))
    if not text.isascii() or not text.replace(".", "", 1).isdigit() or len(text) > 15:
        raise BadMessage(f"{name} is a number from 0", param=name)
    return float(text)


def slug_of(error: VoxgateError | ErrorMessage) -> str:
    """ElevenLabs' word for an error, where it has one; otherwise ours."""
    return _SLUGS.get(error.code, error.code)


def refuse(error: VoxgateError | ErrorMessage) -> Reply:
    """A refused handshake or request, as ElevenLabs' API refuses it."""
    status = HTTPStatus.NOT_FOUND if error.code == "unknown_voice" else status_of(error)
    detail = {"type": status.name.lower(), "code": error.code, "status": slug_of(error), "message": error.message}
    return json_reply(status, {"detail": detail}, retry_headers(error.retry_after_ms))


class ElevenLabsMessage(BaseModel):
    """Any message of a client; what we do nothing with (voice settings, schedules) is let pass."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = None
    context_id: str | None = Field(None, max_length=128)
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    xi_api_key: str | None = Field(None, max_length=4096)


class ElevenLabsContext:
    """`name` is the utterance's, `id` what its messages carry, None on a socket with one utterance."""

    def __init__(self, id: str | None, name: str, options: ElevenLabsOptions, now_s: float) -> None:
        self.id = id
        self.name = name
        self.alignment = CharacterAlignment(absolute=options.absolute_times)
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

    def tell(self, **fields: Any) -> SendPayload:
        return SendPayload(self.encode(**fields))


def find_key(payload: str) -> str | None:
    """The key in a first message."""
    try:
        return parse_json(ElevenLabsMessage, payload).xi_api_key
    except BadMessage:
        return None


def error_fields(slug: str, message: str) -> dict[str, Any]:
    """An error, by ElevenLabs' word for it."""
    return {"message": message, "error": slug, "code": CloseCode.POLICY.value}


def audio_fields(payload: bytes, characters: CharacterTimes | None) -> dict[str, Any]:
    """Audio and the text that is heard in it."""
    audio = base64.b64encode(payload).decode("ascii") if payload else None
    if characters is None:
        return {"audio": audio, "isFinal": None, "alignment": None, "normalizedAlignment": None}
    chars, starts_ms, durations_ms = characters
    alignment = {"chars": chars, "charStartTimesMs": starts_ms, "charDurationsMs": durations_ms}
    return {"audio": audio, "isFinal": None, "alignment": alignment, "normalizedAlignment": alignment}


MAX_CONTEXTS = 5
_DEFAULT_CONTEXT = "default"


class ElevenLabs(WireProtocol):
    """What both kinds of socket have in common: contexts, and how their utterances are told of."""

    name = "elevenlabs"

    def __init__(self, options: ElevenLabsOptions) -> None:
        self._options = options
        self._contexts: dict[str, ElevenLabsContext] = {}
        """By utterance."""
        self._numbers = itertools.count(1)

    # To the utterances

    def _open(self, id: str | None, now_s: float) -> ElevenLabsContext:
        context = ElevenLabsContext(id, f"context-{next(self._numbers)}", self._options, now_s)
        self._contexts[context.name] = context
        return context

    def _speak(self, context: ElevenLabsContext, text: str) -> Iterable[ProtocolAction]:
        if not context.started and not text.strip():
            return
        if not context.started:
            context.started = True
            yield self._options.start(context.name)
        if self._options.auto_mode and not text[-1].isspace():
            text += " "  # or the next sentence would be glued to this one
        context.unflushed = context.unflushed or not text.isspace()
        context.offered = text
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
            yield from self._over(context)

    def _stop(self, context: ElevenLabsContext) -> Iterable[ProtocolAction]:
        if context.started:
            yield Interrupt(type="interrupt", utterance=context.name)
        else:
            yield from self._over(context)

    # From the session

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        if isinstance(message, ErrorMessage) and message.utterance is None:
            return (SendPayload(json.dumps(error_fields(slug_of(message), message.message))),)
        context = self._contexts.get(getattr(message, "utterance", None) or "")
        if context is None:
            return ()
        match message:
            case QueuedMessage() | StartedMessage():
                context.taken = True
            case WordsMessage():
                context.alignment.add_words(message.words)
            case DoneMessage():
                rest = context.alignment.rest()
                last = () if rest is None else (context.tell(**audio_fields(b"", rest)),)
                return (*last, *self._over(context))
            case InterruptedMessage():
                return tuple(self._over(context))
            case ErrorMessage():
                return tuple(self._failed(context, message))
        return ()

    def _failed(self, context: ElevenLabsContext, failed: ErrorMessage) -> Iterable[ProtocolOutput]:
        why = "" if failed.code == EmptyText.code else slug_of(failed)  # nothing to say is no mistake here
        if why:
            yield context.tell(**error_fields(why, failed.message))
        if failed.code not in MESSAGE_ERROR_CODES or not context.taken:
            yield from self._over(context, why)
        elif context.offered:
            context.alignment.retract(context.offered)
            context.offered = ""

    def _over(self, context: ElevenLabsContext, why: str = "") -> Iterable[ProtocolOutput]:
        """Nothing of the context follows but the mark that says so: frameworks wait for it whatever happened.

        `why`: the slug of the error that ended it.
        """
        del why
        del self._contexts[context.name]
        yield context.tell(isFinal=True) if context.id is not None else context.tell(audio=None, isFinal=True)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | None:
        context = self._contexts.get(utterance)
        if context is None:
            return None
        context.active_s = now_s
        header = packet.header
        rate_hz = self._options.audio_format.sample_rate_hz
        if header.last:
            characters = context.alignment.rest()
        else:
            characters = context.alignment.until((header.pts + header.samples) * 1000 / rate_hz)
        if not packet.payload and characters is None:
            return None
        return context.encode(**audio_fields(packet.payload, characters))

    # By itself

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        """Contexts that nobody uses do not keep their talker slots."""
        idle = [each for each in self._contexts.values() if not each.closing and self._idle_s(each) <= now_s]
        return tuple(step for context in idle for step in self._time_out(context))

    def next_wake_s(self) -> float:
        return min((self._idle_s(each) for each in self._contexts.values() if not each.closing), default=math.inf)

    def _idle_s(self, context: ElevenLabsContext) -> float:
        return context.active_s + self._options.inactivity_s

    def _time_out(self, context: ElevenLabsContext) -> Iterable[ProtocolAction]:
        message = f"no text for {self._options.inactivity_s:g} seconds"
        slug = "input_timeout_exceeded"
        yield context.tell(**error_fields(slug, message))
        if context.started:
            yield Interrupt(type="interrupt", utterance=context.name)
        yield from self._over(context, slug)


class MultiStream(ElevenLabs):
    """`multi-stream-input`: contexts by the client's ids."""

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
        context.active_s, context.offered = now_s, ""
        return tuple(self._go_on(context, incoming))

    def _begin(self, id: str | None, incoming: ElevenLabsMessage, now_s: float) -> Iterable[ProtocolAction]:
        if id is None or not incoming.text:
            return  # a keep-alive, or the echo of a context that has ended
        if len(self._contexts) >= MAX_CONTEXTS:
            refused = ElevenLabsContext(id, "", self._options, now_s)
            message = f"a socket has at most {MAX_CONTEXTS} contexts"
            yield refused.tell(**error_fields("max_active_conversations", message))
            yield refused.tell(isFinal=True)
            return
        yield from self._go_on(self._open(id, now_s), incoming)

    def _go_on(self, context: ElevenLabsContext, incoming: ElevenLabsMessage) -> Iterable[ProtocolAction]:
        if context.closing:
            if incoming.close_context:
                yield from self._stop(context)
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

    def _over(self, context: ElevenLabsContext, why: str = "") -> Iterable[ProtocolOutput]:
        yield from super()._over(context, why)
        if self._closing and not self._contexts:
            yield Disconnect(CloseCode.NORMAL)


class SingleStream(ElevenLabs):
    """`stream-input`: one utterance, which an empty text ends, and the socket with it."""

    def __init__(self, options: ElevenLabsOptions) -> None:
        super().__init__(options)
        self._context: ElevenLabsContext | None = None
        self._ended = False

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        incoming = parse_json(ElevenLabsMessage, payload)
        if self._ended:
            return ()
        context = self._context = self._context or self._open(None, now_s)
        context.active_s, context.offered = now_s, ""
        return tuple(self._go_on(context, incoming))

    def _go_on(self, context: ElevenLabsContext, incoming: ElevenLabsMessage) -> Iterable[ProtocolAction]:
        if incoming.text:
            yield from self._speak(context, incoming.text)
        if incoming.flush:
            yield from self._flush(context)
        if incoming.text == "":
            yield from self._end(context)

    def _over(self, context: ElevenLabsContext, why: str = "") -> Iterable[ProtocolOutput]:
        self._ended = True
        yield from super()._over(context, why)
        yield Disconnect(CloseCode.POLICY if why else CloseCode.NORMAL, why)


_PATH = "/v1/text-to-speech/{voice}"
_FIRST_MESSAGE_KEY = FirstMessageKey(find_key, lambda error: json.dumps(error_fields(slug_of(error), error.message)))
ENDPOINTS = (
    WebSocketEndpoint(
        f"{_PATH}/multi-stream-input",
        lambda asked, factory: MultiStream(read_options(asked, factory)),
        refuse,
        _FIRST_MESSAGE_KEY,
    ),
    WebSocketEndpoint(
        f"{_PATH}/stream-input",
        lambda asked, factory: SingleStream(read_options(asked, factory)),
        refuse,
        _FIRST_MESSAGE_KEY,
    ),
)
