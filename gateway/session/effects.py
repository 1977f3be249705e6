"""What a session wants done in the world; its connection does it, in order."""
# TODO-DOC What a session has to say and to have done, in order, in the words of its protocol.

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from voxgate.pipeline.errors import VoxgateError

from ..messages import CloseCode, ErrorMessage, ServerMessage
from .protocol import Disconnect, ProtocolOutput, SendPayload, WireProtocol
from .utterance import ServerUtterance


@dataclass(frozen=True, slots=True)
class SendMessage:
    """A message that is no audio of an utterance under way."""

    message: str | bytes


@dataclass(frozen=True, slots=True)
class SendAudio:
    """A packet of `utterance` leaves; None where the protocol has nothing to say for it (yet)."""

    utterance: ServerUtterance
    message: str | bytes | None


@dataclass(frozen=True, slots=True)
class ReadSpeech:
    """Read the chunks of the utterance's open speech, while its outbox has room."""

    utterance: ServerUtterance


@dataclass(frozen=True, slots=True)
class CloseSpeech:
    """Close the utterance's speech, if one is open, then give its ticket back."""

    utterance: ServerUtterance


@dataclass(frozen=True, slots=True)
class SendProbe:
    """Ask the client whether it has read everything so far, and tell `ServerSession.on_probe_answered` when it has."""


@dataclass(frozen=True, slots=True)
class CloseSocket:
    """Close the socket; nothing follows. After `timeout_s` it is cut, whether or not the client agreed."""

    code: CloseCode
    reason: str
    timeout_s: float = 1.0


Effect = SendMessage | SendAudio | ReadSpeech | CloseSpeech | SendProbe | CloseSocket


class EffectQueue:
    """Effects not taken yet. Once the socket is to be closed, nothing more is said."""

    def __init__(self, protocol: WireProtocol, on_error: Callable[[str], None]) -> None:
        self.closed = False
        """The socket is to be closed, or gone."""
        self._protocol = protocol
        self._on_error = on_error
        self._effects: deque[Effect] = deque()

    def __len__(self) -> int:
        return len(self._effects)

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take(self) -> Effect | None:
        return self._effects.popleft() if self._effects else None

    def send(self, message: ServerMessage) -> None:
        """What the session has to say; the protocol finds the words."""
        if not self.closed:
            for output in self._protocol.encode(message):
                self.put(output)

    def send_error(self, error: VoxgateError, name: str | None, *, partial_audio: bool | None = None) -> None:
        """An error, of utterance `name` or of the socket."""
        if not self.closed:
            self._on_error(error.code)
            self.send(ErrorMessage.of(error, utterance=name, partial_audio=partial_audio))

    def put(self, output: ProtocolOutput) -> None:
        """What the protocol says by itself."""
        match output:
            case SendPayload():
                if not self.closed:
                    self._effects.append(SendMessage(output.payload))
            case Disconnect():
                self.close(output.code, output.reason)

    def close(self, code: CloseCode, reason: str, timeout_s: float = 1.0) -> None:
        """The last effect: close the socket, waiting `timeout_s` for the other side."""
        if not self.closed:
            self._effects.append(CloseSocket(code, reason, timeout_s))
            self.closed = True

    def silence(self, utterance: ServerUtterance) -> None:
        """Nothing of it is sent or listened to any more."""
        self._effects = deque(effect for effect in self._effects if not _speaks(effect, utterance))

    def abandon(self) -> tuple[ServerUtterance, ...]:
        """The socket is gone: forgets everything; returns the utterances that were still to be retired."""
        self.closed = True
        left = tuple(effect.utterance for effect in self._effects if isinstance(effect, CloseSpeech))
        self._effects.clear()
        return left


def _speaks(effect: Effect, utterance: ServerUtterance) -> bool:
    return isinstance(effect, SendAudio | ReadSpeech) and effect.utterance is utterance
