"""What the gateway sends about one utterance, as values (docs/protocol.md, "Gateway to client").

Unknown fields are ignored, so that an older client understands a newer gateway; missing ones are a violation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .errors import ProtocolViolation, SpeechError

HEADER = struct.Struct("<BBHIIQ")
"""version, flags, samples, number, seq, pts: 20 bytes."""
HEADER_VERSION = 1
FLAG_FIRST, FLAG_LAST = 1, 2

Codec = Literal["pcm", "mulaw", "alaw", "opus", "ogg_opus", "mp3", "wav"]
SAMPLE_BYTES: Mapping[str, int] = {"pcm": 2, "mulaw": 1, "alaw": 1}
"""Of the codecs whose payload is nothing but samples."""

Message = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How the audio of an utterance is coded; the default, 16 bit PCM, needs no decoder.

    The payloads of `ogg_opus`, `mp3` and `wav`, joined, are a file.
    """

    codec: Codec = "pcm"
    sample_rate: int = 24_000
    packet_ms: int = 80
    bitrate: int | None = None
    pre_skip: int = 0
    """Samples to drop from the decoder's start; the gateway fills it in."""

    def as_request(self) -> dict[str, Any]:
        asked = {"codec": self.codec, "sample_rate": self.sample_rate, "packet_ms": self.packet_ms}
        return asked if self.bitrate is None else asked | {"bitrate": self.bitrate}


@dataclass(frozen=True, slots=True)
class Audio:
    """One audio message: an Opus packet, mono samples (s16le as `pcm`), or a part of a file. `pts` counts the
    samples before it.
    """

    number: int
    seq: int
    pts: int
    samples: int
    payload: bytes
    first: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Queued:
    """Waiting for a talker slot: `position` counts from 1."""

    position: int
    eta_ms: int | None


@dataclass(frozen=True, slots=True)
class Started:
    """Audio follows, in this format; `seed` repeats the utterance exactly."""

    number: int
    voice: str
    language: str
    seed: int
    format: AudioFormat
    packet_samples: int


@dataclass(frozen=True, slots=True)
class Word:
    """One word, its place in the text as sent (characters) and when it is heard (approximate)."""

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Words:
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The utterance was spoken to its end (`reason` "end") or cut by the cap on its length ("length")."""

    reason: str
    characters: int
    frames: int
    samples: int
    audio_ms: int
    ttfa_ms: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The speech was stopped: what had been heard by `played_ms`, and what was not."""

    played_ms: int
    text_spoken: str
    text_remaining: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, or an error that refused one message; the utterance goes on."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The gateway's first message on a socket."""

    protocol: int
    session: str
    default_voice: str
    voices: str
    formats: Any = None
    limits: Mapping[str, Any] = field(default_factory=dict)


Event = Audio | Queued | Started | Words | Done | Interrupted | Notice


def read_audio(message: bytes) -> Audio:
    """Take a binary message apart. Raises ProtocolViolation."""
    if len(message) < HEADER.size:
        raise ProtocolViolation(f"audio message of {len(message)} bytes is shorter than its header")
    version, flags, samples, number, seq, pts = HEADER.unpack_from(message)
    if version != HEADER_VERSION:
        raise ProtocolViolation(f"audio message of version {version}")
    payload = message[HEADER.size :]
    return Audio(number, seq, pts, samples, payload, bool(flags & FLAG_FIRST), bool(flags & FLAG_LAST))


def read_event(message: Message) -> Event | SpeechError:
    """Understand a control message about an utterance. Raises ProtocolViolation."""
    reader = _READERS.get(message.get("type", ""))
    if reader is None:
        raise ProtocolViolation(f"unknown message type {message.get('type')!r}")
    return _checked(reader, message)


def read_session(message: Message) -> SessionInfo:
    """Understand the first message of a socket. Raises ProtocolViolation."""
    if message.get("type") != "session":
        raise ProtocolViolation(f"expected a session message first, got {message.get('type')!r}")
    return _checked(_session, message)


def read_error(message: Message) -> SpeechError:
    """Understand an `error`. Raises ProtocolViolation."""
    return _checked(_error, message)


def _checked(reader: Callable[[Message], T], message: Message) -> T:
    try:
        return reader(message)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolViolation(f"malformed {message.get('type')!r} message: {error!r}") from error


def _session(message: Message) -> SessionInfo:
    return SessionInfo(
        protocol=int(message["protocol"]),
        session=str(message["session"]),
        default_voice=str(message["default_voice"]),
        voices=str(message["voices"]),
        formats=message.get("formats"),
        limits=message.get("limits") or {},
    )


def _queued(message: Message) -> Queued:
    return Queued(position=int(message["position"]), eta_ms=message.get("eta_ms"))


def _started(message: Message) -> Started:
    asked = message["format"]
    return Started(
        number=int(message["number"]),
        voice=str(message["voice"]),
        language=str(message["language"]),
        seed=int(message["seed"]),
        format=AudioFormat(
            codec=asked["codec"],
            sample_rate=int(asked["sample_rate"]),
            packet_ms=int(asked["packet_ms"]),
            bitrate=asked.get("bitrate"),
            pre_skip=int(asked.get("pre_skip") or 0),
        ),
        packet_samples=int(message["packet_samples"]),
    )


def _words(message: Message) -> Words:
    fields = ("text", "start", "end", "start_ms", "end_ms")
    return Words(tuple(Word(*(word[name] for name in fields)) for word in message["words"]))


def _done(message: Message) -> Done:
    return Done(
        reason=str(message["reason"]),
        characters=int(message["characters"]),
        frames=int(message["frames"]),
        samples=int(message["samples"]),
        audio_ms=int(message["audio_ms"]),
        ttfa_ms=float(message["ttfa_ms"] or 0),
    )


def _interrupted(message: Message) -> Interrupted:
    return Interrupted(int(message["played_ms"]), str(message["text_spoken"]), str(message["text_remaining"]))


def _warning(message: Message) -> Notice:
    return Notice(str(message["code"]), str(message["message"]))


def _error(message: Message) -> SpeechError:
    return SpeechError(
        str(message["code"]),
        str(message["message"]),
        retryable=bool(message["retryable"]),
        param=message.get("param"),
        retry_after_ms=message.get("retry_after_ms"),
        partial_audio=bool(message.get("partial_audio")),
    )


_READERS: Mapping[str, Callable[[Message], Event | SpeechError]] = {
    "queued": _queued,
    "started": _started,
    "words": _words,
    "done": _done,
    "interrupted": _interrupted,
    "warning": _warning,
    "error": _error,
}
