"""The gateway's messages as values (docs/protocol.md, "Gateway to client").

Unknown types and fields are ignored, so that an older client works with a newer gateway. Missing fields are a protocol
violation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .errors import ProtocolViolation, SpeechError

HEADER = struct.Struct("<BBHIIQ")
"""Header of an audio message, 20 bytes: version, flags, samples, number, seq, pts."""
HEADER_VERSION = 1
FLAG_FIRST, FLAG_LAST = 1, 2

Codec = Literal[
    "pcm", "pcm_f32", "mulaw", "alaw", "opus", "ogg_opus", "mp3", "flac", "wav", "wav_f32", "wav_mulaw", "wav_alaw"
]
SAMPLE_BYTES: Mapping[str, int] = {"pcm": 2, "pcm_f32": 4, "mulaw": 1, "alaw": 1}
"""Bytes per sample of the codecs whose payloads are plain samples."""

Message = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Coding of an utterance's audio; the default, 16-bit PCM, needs no decoder.

    The payloads of `ogg_opus`, `mp3`, `flac` and the codecs in WAV, joined, are a file.
    """

    codec: Codec = "pcm"
    sample_rate: int = 24_000
    packet_ms: int = 80
    bitrate: int | None = None
    pre_skip: int = 0
    """Samples to drop at the start of the decoded audio; set by the gateway."""

    def as_request(self) -> dict[str, Any]:
        """The `format` field of a `start` message."""
        request = {"codec": self.codec, "sample_rate": self.sample_rate, "packet_ms": self.packet_ms}
        return request if self.bitrate is None else request | {"bitrate": self.bitrate}


@dataclass(frozen=True, slots=True)
class Audio:
    """One audio message: an Opus packet, mono samples (`pcm`: s16le), or a part of a file."""

    number: int
    """Number of the utterance, as in `Started`."""
    seq: int
    pts: int
    """Samples of the utterance before this message."""
    samples: int
    payload: bytes
    first: bool
    last: bool
    skip_samples: int = 0
    """Decoded samples to drop at its start, because they were heard before a hold; plain samples come without them."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The utterance waits for a talker slot; `position` counts from 1."""

    position: int
    eta_ms: int | None


@dataclass(frozen=True, slots=True)
class Started:
    """Audio follows in this format. The same `seed` repeats the utterance exactly."""

    number: int
    voice: str
    language: str
    seed: int
    format: AudioFormat
    packet_samples: int


@dataclass(frozen=True, slots=True)
class Word:
    """One word: its position in the text as sent, in characters, and its approximate time in the audio."""

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Words:
    """Times of words, with their audio or up to seconds before it."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Viseme:
    """A mouth shape, one of Oculus' fifteen, from `start_ms` of the audio to the next."""

    viseme: str
    start_ms: int


@dataclass(frozen=True, slots=True)
class Visemes:
    """Mouth shapes of audio that follows. Only with `visemes`."""

    visemes: tuple[Viseme, ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """All audio of the utterance is made, so its length is known; much of it may not be sent yet."""

    samples: int
    audio_ms: int


@dataclass(frozen=True, slots=True)
class Starving:
    """The talker waits for text; `audio_ms` of audio are made and not played yet. Only with `starving_ms`."""

    audio_ms: int


@dataclass(frozen=True, slots=True)
class Done:
    """The utterance is complete (`reason` "end") or was cut at its maximum length ("length")."""

    reason: str
    characters: int
    frames: int
    samples: int
    audio_ms: int
    ttfa_ms: float | None
    """From the first text to the first audio message; None where this gateway sent none, as after a move at the end."""
    pronunciations: tuple[str, ...] = ()
    """Terms that were spoken in another form."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The utterance was stopped; the text is divided at the playback position `played_ms`."""

    played_ms: int
    text_spoken: str
    text_remaining: str
    hold_ms: int | None = None
    """For how long it can go on; None when it is over."""


@dataclass(frozen=True, slots=True)
class Continued:
    """A held utterance goes on at `played_ms`, in message `seq`, whose first `skip_samples` were heard."""

    seq: int
    skip_samples: int
    played_ms: int


@dataclass(frozen=True, slots=True)
class Retracted:
    """`text` was taken back; the first `characters` characters stay, and more may follow.

    Words that begin at `void_from` or later are void. `flush_at`: length of the text that is spoken up to the cut, as
    behind a flush; None without a cut. `samples` and `audio_ms`: audio up to the cut; mouth shapes from there on are
    void. `checkpoint`: the parts that take the place of those before; the session keeps them.
    """

    characters: int
    text: str
    void_from: int
    flush_at: int | None = None
    samples: int | None = None
    audio_ms: int | None = None
    checkpoint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, or an error about a single message; the utterance continues."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """The connection was lost, and another one is being opened: audio is late. `Resumed` or SessionLost follows."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The utterance goes on over another connection; nothing is missing. `moved`: at another gateway."""

    moved: bool = False


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The gateway's first message on a connection."""

    protocol: int
    session: str
    default_voice: str
    voices: str
    formats: Any = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    quota: Mapping[str, Any] = field(default_factory=dict)
    """Limits of the key and what is left of them; what is unlimited is not there."""
    capabilities: frozenset[str] = frozenset()
    resume: Mapping[str, Any] | None = None
    """How the session can be resumed after a lost connection; None when it cannot."""
    model: str | None = None
    """Identity of the model of a gateway that sends checkpoints; None for one that does not."""


@dataclass(frozen=True, slots=True)
class LimitsInfo:
    """Limits of the connection, and those of the key with what is left of them now."""

    limits: Mapping[str, Any]
    quota: Mapping[str, Any]


Event = (
    Audio
    | Queued
    | Started
    | Words
    | Visemes
    | Generated
    | Starving
    | Done
    | Interrupted
    | Continued
    | Retracted
    | Notice
    | Reconnecting
    | Resumed
)


def read_audio(message: bytes) -> Audio:
    """Reads a binary message. Raises ProtocolViolation."""
    if len(message) < HEADER.size:
        raise ProtocolViolation(f"audio message must have at least {HEADER.size} bytes, got {len(message)}")
    version, flags, samples, number, seq, pts = HEADER.unpack_from(message)
    if version != HEADER_VERSION:
        raise ProtocolViolation(f"audio message must have version {HEADER_VERSION}, got {version}")
    payload = message[HEADER.size :]
    return Audio(number, seq, pts, samples, payload, bool(flags & FLAG_FIRST), bool(flags & FLAG_LAST))


def read_event(message: Message) -> Event | SpeechError | None:
    """Reads a control message about an utterance; None for a type that is not known. Raises ProtocolViolation."""
    reader = _READERS.get(message.get("type", ""))
    return None if reader is None else _checked(reader, message)


def read_session(message: Message) -> SessionInfo:
    """Reads the first message of a connection. Raises ProtocolViolation."""
    if message.get("type") != "session":
        raise ProtocolViolation(f"expected a session message first, got {message.get('type')!r}")
    return _checked(_session, message)


def read_error(message: Message) -> SpeechError:
    """Reads an `error` message. Raises ProtocolViolation."""
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
        quota=message.get("quota") or {},
        capabilities=frozenset(message.get("capabilities") or ()),
        resume=message.get("resume"),
        model=message.get("model"),
    )


def read_limits(message: Message) -> LimitsInfo:
    """Reads a `limits` message. Raises ProtocolViolation."""
    return _checked(lambda fields: LimitsInfo(dict(fields["limits"]), dict(fields["quota"])), message)


def _queued(message: Message) -> Queued:
    return Queued(position=int(message["position"]), eta_ms=message.get("eta_ms"))


def _started(message: Message) -> Started:
    granted = message["format"]
    return Started(
        number=int(message["number"]),
        voice=str(message["voice"]),
        language=str(message["language"]),
        seed=int(message["seed"]),
        format=AudioFormat(
            codec=granted["codec"],
            sample_rate=int(granted["sample_rate"]),
            packet_ms=int(granted["packet_ms"]),
            bitrate=granted.get("bitrate"),
            pre_skip=int(granted.get("pre_skip") or 0),
        ),
        packet_samples=int(message["packet_samples"]),
    )


def _words(message: Message) -> Words:
    fields = ("text", "start", "end", "start_ms", "end_ms")
    return Words(tuple(Word(*(word[name] for name in fields)) for word in message["words"]))


def _visemes(message: Message) -> Visemes:
    return Visemes(tuple(Viseme(str(shape["viseme"]), int(shape["start_ms"])) for shape in message["visemes"]))


def _generated(message: Message) -> Generated:
    return Generated(samples=int(message["samples"]), audio_ms=int(message["audio_ms"]))


def _starving(message: Message) -> Starving:
    return Starving(audio_ms=int(message["audio_ms"]))


def _done(message: Message) -> Done:
    ttfa_ms = message.get("ttfa_ms")
    return Done(
        reason=str(message["reason"]),
        characters=int(message["characters"]),
        frames=int(message["frames"]),
        samples=int(message["samples"]),
        audio_ms=int(message["audio_ms"]),
        ttfa_ms=None if ttfa_ms is None else float(ttfa_ms),
        pronunciations=tuple(map(str, message.get("pronunciations", ()))),
    )


def _interrupted(message: Message) -> Interrupted:
    spoken, remaining = str(message["text_spoken"]), str(message["text_remaining"])
    hold_ms = message.get("hold_ms")
    return Interrupted(int(message["played_ms"]), spoken, remaining, None if hold_ms is None else int(hold_ms))


def _continued(message: Message) -> Continued:
    return Continued(int(message["seq"]), int(message["skip_samples"]), int(message["played_ms"]))


def _retracted(message: Message) -> Retracted:
    return Retracted(
        int(message["characters"]),
        str(message["text"]),
        int(message["void_from"]),
        message.get("flush_at"),
        message.get("samples"),
        message.get("audio_ms"),
        tuple(map(str, message.get("checkpoint", ()))),
    )


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
        characters=message.get("characters"),
        message_id=message.get("id"),
        reached=message.get("reached"),
    )


_READERS: Mapping[str, Callable[[Message], Event | SpeechError]] = {
    "queued": _queued,
    "started": _started,
    "words": _words,
    "visemes": _visemes,
    "generated": _generated,
    "starving": _starving,
    "done": _done,
    "interrupted": _interrupted,
    "continued": _continued,
    "retracted": _retracted,
    "warning": _warning,
    "error": _error,
}
