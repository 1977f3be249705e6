"""Messages of the native protocol (docs/protocol.md): from the client and to the client, and close codes.

The session works with these messages whatever the wire protocol is; other protocols translate from and to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from voxgate.pipeline.errors import BadMessage, VoxgateError
from voxgate.pipeline.interface import (
    Prosody,
    SamplingOptions,
    SpeechRequest,
    TextLayout,
    VisemeTime,
    WordTime,
)

from .message_parsing import Count, MessageId, StrictMessage, UtteranceId, first_error, quoted_path
from .resume_messages import CheckpointMessage, CheckpointParts, ClientProgress, Received, Resume, ResumeOffer
from .start_fields import DEFAULT_MARKUP, StartOptions, Traceparent

SUBPROTOCOL = "voxgate.v1"
"""WebSocket subprotocol of a client that ignores messages and fields that it does not know."""
KEY_CHARACTERS = 4096
"""Maximum length of an API key or token."""


# From the client


class _ClientMessage(StrictMessage):
    id: MessageId | None = None
    """The client's own id of the message, which errors about it repeat."""


class Defaults(StartOptions):
    """Options of the utterances that the client starts from now on, in place of those of an earlier message."""

    type: Literal["defaults"]


class Start(StartOptions):
    """Begins an utterance; its text follows in `Text` messages."""

    type: Literal["start"]
    utterance: UtteranceId
    seed: Count | None = None
    traceparent: Traceparent | None = None

    def over(self, defaults: Defaults) -> Start:
        """Returns the message with the options of `defaults` where it gives none."""
        options = StartOptions.model_fields.keys() - {"id"}
        given = {name: getattr(defaults, name) for name in defaults.model_fields_set & options}
        return self.model_copy(update={name: given[name] for name in given.keys() - self.model_fields_set})

    @property
    def tells_starving(self) -> bool:
        """Whether a wait for text is told: there is none before a non-streamed text has ended, nor without pacing."""
        return self.layout == "streaming" and self.pacing == "playback"

    def request(self, default_voice: str, *, normalise: bool = False, trim_silence: bool = True) -> SpeechRequest:
        """Returns the pipeline's request; the arguments fill in what the message leaves out."""
        sampling = self.sampling.model_dump(exclude={"max_frames"})
        return SpeechRequest(
            voice=self.voice or default_voice,
            language=self.language,
            instructions=self.instructions,
            sampling=SamplingOptions(**sampling),
            seed=self.seed,
            max_frames=self.sampling.max_frames,
            layout=TextLayout(self.layout),
            trim_silence=trim_silence if self.trim_silence is None else self.trim_silence,
            words=self.words,
            visemes=self.visemes,
            normalise=normalise if self.normalise is None else self.normalise,
            paced=self.pacing == "playback",
            markup=DEFAULT_MARKUP if self.markup is None else self.markup,
            prosody=Prosody(self.rate, self.volume),
        )


class Restore(Start):
    """Begins an utterance behind what another gateway has sent of it: `received` of its audio and words.

    `checkpoint`: the first parts of its checkpoint. `characters`: length of the text that the client sends again.
    """

    type: Literal["restore"]  # type: ignore[assignment]  # a `start` with more fields, told apart by its type
    checkpoint: Annotated[tuple[str, ...], Field(min_length=1)]
    received: ClientProgress
    characters: Count = 0


class Text(_ClientMessage):
    """Appends a fragment of text to an utterance."""

    type: Literal["text"]
    utterance: UtteranceId
    text: str


class Flush(_ClientMessage):
    """Speaks all text received so far without waiting for more."""

    type: Literal["flush"]
    utterance: UtteranceId


class End(_ClientMessage):
    """Ends the text of an utterance."""

    type: Literal["end"]
    utterance: UtteranceId


class Interrupt(_ClientMessage):
    """Stops an utterance; `played_ms` is how much of it the client has played. Without `utterance`, stops all.

    With `hold_ms` it is kept for so long, and `Continue` has it go on.
    """

    type: Literal["interrupt"]
    utterance: UtteranceId | None = None
    played_ms: Count | None = None
    hold_ms: Annotated[int, Field(ge=1, lt=2**53)] | None = None


class Continue(_ClientMessage):
    """Has a held utterance go on from what was heard."""

    type: Literal["continue"]
    utterance: UtteranceId


class Retract(_ClientMessage):
    """Takes back the text that was not spoken yet, but its first `characters`."""

    type: Literal["retract"]
    utterance: UtteranceId
    characters: Count = 0


class Ack(_ClientMessage):
    """Reports how many samples of an utterance the client has played."""

    type: Literal["ack"]
    utterance: UtteranceId
    played_samples: Count


class Ping(_ClientMessage):
    """Requests a `pong` with the same `id`."""

    type: Literal["ping"]


class AskLimits(_ClientMessage):
    """Requests a `limits` message with the same `id`."""

    type: Literal["limits"]


class Auth(_ClientMessage):
    """First message of a client that cannot set headers: its API key or token. Ignored where the handshake had one."""

    type: Literal["auth"]
    key: Annotated[str, StringConstraints(min_length=1, max_length=KEY_CHARACTERS)]


ClientMessage = (
    Start
    | Restore
    | Defaults
    | Text
    | Flush
    | End
    | Interrupt
    | Continue
    | Retract
    | Ack
    | Ping
    | AskLimits
    | Auth
    | Resume
    | Received
    | CheckpointParts
)

_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(Annotated[ClientMessage, Field(discriminator="type")])


def parse_message(text: str) -> ClientMessage:
    """Parses one client message. Raises BadMessage, whose `param` is the path of the first invalid field."""
    try:
        return _CLIENT_MESSAGE.validate_json(text)
    except ValidationError as invalid:
        reason, path, kind = first_error(invalid)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        param: str | None = "type"
    else:
        # The path begins with the type of the message; without one, the whole message is invalid.
        param = quoted_path(path[1:])
    raise BadMessage(reason, param=param)


# From the gateway


class _ServerMessage(StrictMessage):
    def encode(self) -> str:
        """Returns the JSON text of the message, without fields that are None."""
        return self.model_dump_json(exclude_none=True)


class Limits(StrictMessage):
    """Limits of a socket, sent in the `session` message. `Settings.session_limits` fills it in."""

    lead_ms: int
    lead_max_ms: int
    utterances_per_session: int
    characters_per_utterance: int
    message_bytes: int
    messages_per_s: float
    starts_per_s: float
    interrupts_per_s: float
    queue_wait_ms: int
    stall_limit_ms: int
    hold_max_ms: int


class Quota(StrictMessage):
    """Limits of the client's key (without keys, of its address) and what is left of them; None where unlimited."""

    sockets: int | None = None
    sockets_left: int | None = None
    utterances: int | None = None
    characters_per_minute: int | None = None
    characters_left: int | None = None


CAPABILITIES = (
    "auth",
    "checkpoints",
    "defaults",
    "framing",
    "generated",
    "hold_ms",
    "lead_ms",
    "limits",
    "offsets",
    "resume",
    "retract",
    "starving",
    "traceparent",
    "visemes",
)
"""What this gateway's native protocol has beyond the first edition of version 1."""


class SessionMessage(_ServerMessage):
    """First message on a socket: its name, the voices, formats and limits; the model where it sends checkpoints."""

    type: Literal["session"] = "session"
    protocol: int = 1
    session: str
    voices: str = "/v1/voices"
    default_voice: str
    formats: tuple[dict[str, Any], ...]
    capabilities: tuple[str, ...] = CAPABILITIES
    limits: Limits
    quota: Quota
    resume: ResumeOffer | None = None
    model: str | None = None


class LimitsMessage(_ServerMessage):
    """Answers a request for the limits."""

    type: Literal["limits"] = "limits"
    id: str | None = None
    limits: Limits
    quota: Quota


class AcceptedMessage(_ServerMessage):
    """The session accepted a `start`; the native protocol does not send it."""

    type: Literal["accepted"] = "accepted"
    utterance: str


class QueuedMessage(_ServerMessage):
    """The utterance waits for a talker slot: position from 1, and the expected wait."""

    type: Literal["queued"] = "queued"
    utterance: str
    position: int
    eta_ms: int


class StartedFormat(StrictMessage):
    """Audio format in a `started` message; the client drops the first `pre_skip` samples."""

    codec: str
    sample_rate: int
    bitrate: int | None
    packet_ms: int
    pre_skip: int


class StartedMessage(_ServerMessage):
    """The utterance has a talker slot; `number` marks its audio packets."""

    type: Literal["started"] = "started"
    utterance: str
    number: int
    voice: str
    language: str
    seed: int
    format: StartedFormat
    packet_samples: int


class WordFields(StrictMessage):
    """A word of the text: offsets in characters, and when it is heard."""

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


class WordsMessage(_ServerMessage):
    """Words whose times are known now."""

    type: Literal["words"] = "words"
    utterance: str
    words: tuple[WordFields, ...]
    approximate: bool = True

    @classmethod
    def of(cls, utterance: str, words: Sequence[WordTime]) -> WordsMessage:
        """Returns the message for `words` of the utterance."""
        return cls(utterance=utterance, words=tuple(WordFields(**asdict(word)) for word in words))


class VisemeFields(StrictMessage):
    """A mouth shape, from `start_ms` of the audio to the next."""

    viseme: str
    start_ms: int


class VisemesMessage(_ServerMessage):
    """Mouth shapes of audio that follows."""

    type: Literal["visemes"] = "visemes"
    utterance: str
    visemes: tuple[VisemeFields, ...]

    @classmethod
    def of(cls, utterance: str, visemes: Sequence[VisemeTime]) -> VisemesMessage:
        """Returns the message for `visemes` of the utterance."""
        return cls(utterance=utterance, visemes=tuple(VisemeFields(**asdict(viseme)) for viseme in visemes))


class GeneratedMessage(_ServerMessage):
    """All audio of the utterance is made, and much of it may not be sent yet."""

    type: Literal["generated"] = "generated"
    utterance: str
    samples: int
    audio_ms: int


class StarvingMessage(_ServerMessage):
    """The talker waits for text; `audio_ms` of audio are made and not played yet."""

    type: Literal["starving"] = "starving"
    utterance: str
    audio_ms: int


class DoneMessage(_ServerMessage):
    """All audio of the utterance is sent. `pronunciations`: terms of lexica that were replaced; None for none."""

    type: Literal["done"] = "done"
    utterance: str
    reason: str
    characters: int
    frames: int
    samples: int
    audio_ms: int
    ttfa_ms: int | None
    pronunciations: tuple[str, ...] | None = None
    pauses: int = Field(0, exclude=True)
    """Pauses of markup; the native protocol does not send it."""


class InterruptedMessage(_ServerMessage):
    """The utterance is stopped; `text_spoken` is the text heard until then. `hold_ms`: for how long it is kept."""

    type: Literal["interrupted"] = "interrupted"
    utterance: str
    played_ms: int
    text_spoken: str
    text_remaining: str
    hold_ms: int | None = None


class ContinuedMessage(_ServerMessage):
    """A held utterance goes on at `played_ms`: audio follows from message `seq` on.

    `skip_samples` of that message's decoded samples were heard.
    """

    type: Literal["continued"] = "continued"
    utterance: str
    seq: int
    skip_samples: int
    played_ms: int


class RetractedMessage(_ServerMessage):
    """`text` was taken back; `characters` are left, and more may follow.

    Words that begin at `void_from` or later are void. `flush_at`: length of the text that is spoken up to the cut, as
    behind a flush; None without a cut. `samples` and `audio_ms`: audio up to the cut; mouth shapes from there on are
    void. `checkpoint`: the parts of the checkpoint from now on; those before are void.
    """

    type: Literal["retracted"] = "retracted"
    id: str | None = None
    utterance: str
    characters: int
    text: str
    void_from: int
    flush_at: int | None = None
    samples: int | None = None
    audio_ms: int | None = None
    checkpoint: list[str] | None = None


MARKUP_IGNORED = "markup_ignored"
"""Code of the warning that a control in the text is not honoured."""
TEXT_WAITED_OUT = "text_waited_out"
"""Code of the warning that the text idle timeout ended an utterance."""
ENGINE_RESTARTS = "engine_restarts"
"""Code of the warning that an utterance pauses, because the engine was lost, and then goes on."""


class WarningMessage(_ServerMessage):
    """Something to fix; the utterance continues."""

    type: Literal["warning"] = "warning"
    code: str
    message: str
    utterance: str | None = None


class ErrorMessage(_ServerMessage):
    """An error, of an utterance or of the socket.

    `id` is that of the client's message; `characters` is the accepted text of an utterance that continues.
    """

    type: Literal["error"] = "error"
    code: str
    message: str
    retryable: bool
    utterance: str | None = None
    id: str | None = None
    characters: int | None = None
    param: str | None = None
    retry_after_ms: int | None = None
    reached: str | None = None
    limit: int | None = None
    received: int | None = None
    partial_audio: bool | None = None

    @classmethod
    def of(
        cls,
        error: VoxgateError,
        *,
        utterance: str | None = None,
        message_id: str | None = None,
        characters: int | None = None,
        partial_audio: bool | None = None,
    ) -> ErrorMessage:
        """Returns the message that reports `error`."""
        return cls(
            code=error.code,
            message=error.message,
            retryable=error.retryable,
            utterance=utterance,
            id=message_id,
            characters=characters,
            param=error.param,
            retry_after_ms=error.retry_after_ms,
            reached=error.reached,
            limit=getattr(error, "limit", None),
            received=getattr(error, "received", None),
            partial_audio=partial_audio,
        )


class GoingAwayMessage(_ServerMessage):
    """The gateway is shutting down; active utterances may finish within `deadline_ms`.

    `restore_elsewhere`: the client has all parts of their checkpoints, and can go on at another gateway at once.
    """

    type: Literal["going_away"] = "going_away"
    deadline_ms: int
    restore_elsewhere: bool | None = None


class PongMessage(_ServerMessage):
    """Answers a `ping`."""

    type: Literal["pong"] = "pong"
    id: str | None = None


ServerMessage = (
    SessionMessage
    | AcceptedMessage
    | QueuedMessage
    | StartedMessage
    | WordsMessage
    | VisemesMessage
    | GeneratedMessage
    | StarvingMessage
    | CheckpointMessage
    | LimitsMessage
    | DoneMessage
    | InterruptedMessage
    | ContinuedMessage
    | RetractedMessage
    | WarningMessage
    | ErrorMessage
    | GoingAwayMessage
    | PongMessage
)


class CloseCode(IntEnum):
    """WebSocket close codes of the gateway (RFC 6455, section 7.4, and its registry; 4001 is in the private range)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    NOT_ACCEPTABLE = 1003
    POLICY = 1008
    RESTARTING = 1012
    TRY_AGAIN_LATER = 1013
    SLOW_CONSUMER = 4001
    LOST = 4002
    """Of a client that gives its connection up and resumes."""
