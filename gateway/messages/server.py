"""Messages to the client about utterances and errors, and the union of all messages to the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from pydantic import Field
from voxgate.pipeline.errors import VoxgateError
from voxgate.pipeline.interface import VisemeTime, WordTime

from .connection import GoingAwayMessage, LimitsMessage, PongMessage, SessionMessage
from .parsing import GatewayMessage, StrictMessage
from .resumption import CheckpointMessage


class AcceptedMessage(GatewayMessage):
    """The session accepted a `start`; the native protocol does not send it."""

    type: Literal["accepted"] = "accepted"
    utterance: str


class QueuedMessage(GatewayMessage):
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


class StartedMessage(GatewayMessage):
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


class WordsMessage(GatewayMessage):
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


class VisemesMessage(GatewayMessage):
    """Mouth shapes of audio that follows."""

    type: Literal["visemes"] = "visemes"
    utterance: str
    visemes: tuple[VisemeFields, ...]

    @classmethod
    def of(cls, utterance: str, visemes: Sequence[VisemeTime]) -> VisemesMessage:
        """Returns the message for `visemes` of the utterance."""
        return cls(utterance=utterance, visemes=tuple(VisemeFields(**asdict(viseme)) for viseme in visemes))


class GeneratedMessage(GatewayMessage):
    """All audio of the utterance is made, and much of it may not be sent yet."""

    type: Literal["generated"] = "generated"
    utterance: str
    samples: int
    audio_ms: int


class StarvingMessage(GatewayMessage):
    """The talker waits for text; `audio_ms` of audio are made and not played yet."""

    type: Literal["starving"] = "starving"
    utterance: str
    audio_ms: int


class DoneMessage(GatewayMessage):
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


class InterruptedMessage(GatewayMessage):
    """The utterance is stopped; `text_spoken` is the text heard until then. `hold_ms`: for how long it is kept."""

    type: Literal["interrupted"] = "interrupted"
    utterance: str
    played_ms: int
    text_spoken: str
    text_remaining: str
    hold_ms: int | None = None


class ContinuedMessage(GatewayMessage):
    """A held utterance goes on at `played_ms`: audio follows from message `seq` on.

    `skip_samples` of that message's decoded samples were heard.
    """

    type: Literal["continued"] = "continued"
    utterance: str
    seq: int
    skip_samples: int
    played_ms: int


class RetractedMessage(GatewayMessage):
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


class WarningMessage(GatewayMessage):
    """Something to fix; the utterance continues."""

    type: Literal["warning"] = "warning"
    code: str
    message: str
    utterance: str | None = None


class ErrorMessage(GatewayMessage):
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
