"""What a session has to say and to have done, in order, in the words of its dialect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..pipeline.errors import VoxgateError
from .dialects.dialect import Dialect, HangUp, Output, Say
from .effects import CloseCode, CloseSocket, Effect, Listen, Retire, SendAudio, SendMessage
from .messages import Failed, ServerMessage
from .utterance import Utterance


class Outgoing:
    """Effects not taken yet. Once the socket is to be closed, nothing more is said."""

    def __init__(self, dialect: Dialect, on_error: Callable[[str], None]) -> None:
        self.closed = False
        """The socket is to be closed, or gone."""
        self._dialect = dialect
        self._on_error = on_error
        self._effects: deque[Effect] = deque()

    def __len__(self) -> int:
        return len(self._effects)

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take(self) -> Effect | None:
        return self._effects.popleft() if self._effects else None

    def send(self, message: ServerMessage) -> None:
        """What the session has to say; the dialect finds the words."""
        if not self.closed:
            for output in self._dialect.tell(message):
                self.put(output)

    def tell(self, error: VoxgateError, name: str | None, *, partial_audio: bool | None = None) -> None:
        """An error, of utterance `name` or of the socket."""
        if not self.closed:
            self._on_error(error.code)
            self.send(Failed.of(error, utterance=name, partial_audio=partial_audio))

    def put(self, output: Output) -> None:
        """What the dialect says by itself."""
        match output:
            case Say():
                if not self.closed:
                    self._effects.append(SendMessage(output.payload))
            case HangUp():
                self.close(output.code, output.reason)

    def close(self, code: CloseCode, reason: str, patience_s: float = 1.0) -> None:
        """The last effect: close the socket, waiting `patience_s` for the other side."""
        if not self.closed:
            self._effects.append(CloseSocket(code, reason, patience_s))
            self.closed = True

    def silence(self, utterance: Utterance) -> None:
        """Nothing of it is sent or listened to any more."""
        self._effects = deque(effect for effect in self._effects if not _speaks(effect, utterance))

    def abandon(self) -> tuple[Utterance, ...]:
        """The socket is gone: forgets everything; returns the utterances that were still to be retired."""
        self.closed = True
        left = tuple(effect.utterance for effect in self._effects if isinstance(effect, Retire))
        self._effects.clear()
        return left


def _speaks(effect: Effect, utterance: Utterance) -> bool:
    return isinstance(effect, SendAudio | Listen) and effect.utterance is utterance
