"""What a session wants done, as values in order. `transport.connection` performs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from voxgate.pipeline.errors import VoxgateError
from voxgate.pipeline.interface import Speech
from voxgate.pipeline.text.lexicon.lexicon import Lexicon

from ..messages.connection import CloseCode
from ..messages.server import ErrorMessage, ServerMessage
from .protocol import Disconnect, ProtocolOutput, Resumption, SendPayload, WireProtocol
from .utterance import ServerUtterance


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message other than audio of an active utterance."""

    message: str | bytes


@dataclass(frozen=True, slots=True)
class SendAudio:
    """Send a packet of `utterance`; None where the protocol sends no message for it. `pts`: the samples before it."""

    utterance: ServerUtterance
    message: str | bytes | None
    pts: int = 0


@dataclass(frozen=True, slots=True)
class ReadSpeech:
    """Read the chunks of `speech` into the utterance while its outbox has room."""

    utterance: ServerUtterance
    speech: Speech


@dataclass(frozen=True, slots=True)
class SuspendSpeech:
    """Suspend `speech`, wherever it is or only if it waits for text; then call `ServerSession.on_suspended`."""

    utterance: ServerUtterance
    speech: Speech
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class RewindSpeech:
    """Stop to read `speech` and close it; then call `ServerSession.on_rewound`."""

    utterance: ServerUtterance
    speech: Speech


@dataclass(frozen=True, slots=True)
class LoadDictionaries:
    """Await `load()`, then call `ServerSession.on_dictionaries`. Until then pass no message."""

    load: Callable[[], Awaitable[tuple[Lexicon, ...]]]


@dataclass(frozen=True, slots=True)
class CloseSpeech:
    """Close the utterance's speech, if one is open, then release its ticket."""

    utterance: ServerUtterance


@dataclass(frozen=True, slots=True)
class SendProbe:
    """Find out when the client has read everything sent so far; then call `ServerSession.on_probe_answered`."""


@dataclass(frozen=True, slots=True)
class CloseSocket:
    """Close the socket; nothing follows. Abort the connection after `timeout_s`."""

    code: CloseCode
    reason: str
    timeout_s: float = 1.0


@dataclass(frozen=True, slots=True)
class LoseSocket:
    """Give up the connection, whose client does not read, as lost: the client may resume."""

    resumption: Resumption


Effect = (
    SendMessage
    | SendAudio
    | ReadSpeech
    | SuspendSpeech
    | RewindSpeech
    | LoadDictionaries
    | CloseSpeech
    | SendProbe
    | LoseSocket
    | CloseSocket
)


class EffectQueue:
    """The effects of one session, in the words of its protocol. After a close, no message is added any more."""

    def __init__(self, protocol: WireProtocol, on_error: Callable[[VoxgateError], None]) -> None:
        """Calls `on_error` with each error that is sent."""
        self.closed = False
        """Whether the socket is to be closed, or is gone."""
        self._protocol = protocol
        self._on_error = on_error
        self._effects: deque[Effect] = deque()

    def __len__(self) -> int:
        return len(self._effects)

    def add(self, effect: Effect) -> None:
        """Adds an effect behind the others; closing a speech goes first, because its slot must not wait for writes."""
        if isinstance(effect, CloseSpeech):
            self._effects.appendleft(effect)
        else:
            self._effects.append(effect)

    def take(self) -> Effect | None:
        """Removes and returns the next effect; None when there is none."""
        return self._effects.popleft() if self._effects else None

    def send(self, message: ServerMessage) -> None:
        """Adds a message of the session, translated by the protocol."""
        if not self.closed:
            for output in self._protocol.encode(message):
                self.add_output(output)

    def send_error(
        self,
        error: VoxgateError,
        name: str | None,
        *,
        message_id: str | None = None,
        characters: int | None = None,
        partial_audio: bool | None = None,
    ) -> None:
        """Adds an error of the utterance `name`, or of the socket, about the client's message `message_id`."""
        if not self.closed:
            self._on_error(error)
            self.send(
                ErrorMessage.of(
                    error, utterance=name, message_id=message_id, characters=characters, partial_audio=partial_audio
                )
            )

    def add_output(self, output: ProtocolOutput) -> None:
        """Adds what the protocol itself sends."""
        match output:
            case SendPayload():
                if not self.closed:
                    self._effects.append(SendMessage(output.payload))
            case Disconnect():
                self.close(output.code, output.reason)

    def close(self, code: CloseCode, reason: str, timeout_s: float = 1.0) -> None:
        """Adds the final effect: close the socket, and abort the connection after `timeout_s`."""
        if not self.closed:
            self._effects.append(CloseSocket(code, reason, timeout_s))
            self.closed = True

    def lose_socket(self, resumption: Resumption) -> None:
        """Adds, before all others, the effect that gives up the connection. Safe to call twice."""
        if not self.loses_socket and not self.closed:
            self._effects.appendleft(LoseSocket(resumption))

    @property
    def loses_socket(self) -> bool:
        """Whether the connection is given up next."""
        return bool(self._effects) and isinstance(self._effects[0], LoseSocket)

    def drop_audio(self, utterance: ServerUtterance) -> None:
        """Removes audio, reading, suspension and rewinding of an utterance that has ended."""
        self._effects = deque(effect for effect in self._effects if not _is_audio_of(utterance, effect))

    def stop_audio(self, utterance: ServerUtterance) -> int | None:
        """Removes the packets of an utterance that stops; returns the samples before the first, None without any."""
        unsent = None
        left: deque[Effect] = deque()
        for effect in self._effects:
            if not (isinstance(effect, SendAudio) and effect.utterance is utterance):
                left.append(effect)
            elif unsent is None:
                unsent = effect.pts
        self._effects = left
        return unsent

    def clear(self) -> tuple[ServerUtterance, ...]:
        """Removes everything, because the socket is gone; returns the utterances whose speech is still to be closed."""
        self.closed = True
        left = tuple(effect.utterance for effect in self._effects if isinstance(effect, CloseSpeech))
        self._effects.clear()
        return left


def _is_audio_of(utterance: ServerUtterance, effect: Effect) -> bool:
    return isinstance(effect, SendAudio | ReadSpeech | SuspendSpeech | RewindSpeech) and effect.utterance is utterance
