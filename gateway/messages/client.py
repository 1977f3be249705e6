"""Messages from the client, and the parser of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from voxgate.pipeline.errors import BadMessage
from voxgate.pipeline.interface import Prosody, SpeechRequest, TextLayout

from .parsing import Count, MessageId, StrictMessage, UtteranceId, first_error, quoted_path, without_halves
from .resumption import CheckpointParts, ClientProgress, Received, Resume
from .start_fields import DEFAULT_MARKUP, StartOptions, Traceparent

KEY_CHARACTERS = 4096
"""Maximum length of an API key or token."""


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
        """Whether waits for text are reported: none come before the end of non-streamed text, or without pacing."""
        return self.layout == "streaming" and self.pacing == "playback"

    def request(self, default_voice: str, *, normalise: bool = False, trim_silence: bool = True) -> SpeechRequest:
        """Returns the pipeline's request; the arguments fill in what the message leaves out."""
        return SpeechRequest(
            voice=self.voice or default_voice,
            language=self.language,
            instructions=self.instructions,
            sampling=self.sampling.options(),
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
        return _CLIENT_MESSAGE.validate_json(without_halves(text))
    except ValidationError as invalid:
        reason, path, kind = first_error(invalid)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        param: str | None = "type"
    else:
        # The path begins with the type of the message; without one, the whole message is invalid.
        param = quoted_path(path[1:])
    raise BadMessage(reason, param=param)
