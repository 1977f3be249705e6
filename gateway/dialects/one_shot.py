"""Speech whose text is known whole, the dialect of plain HTTP: one utterance, its audio, the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..effects import CloseCode
from ..messages import Done, End, Failed, ServerMessage, Start, Text, Word, Words
from ..outbox import AudioPacket
from .dialect import Dialect, HangUp, Output, Say, Step

UTTERANCE = "speech"
"""The name of the only utterance."""


class Body:
    """What a response is made of: the audio as it is. Subclass it for other shapes."""

    words = False
    """Word times are wanted."""

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type

    def hear(self, words: Sequence[Word]) -> None:
        """Words of audio that leaves later, or has left."""

    def audio(self, packet: AudioPacket) -> bytes | None:
        """The bytes that carry a packet."""
        return packet.payload or None

    def end(self, done: Done) -> bytes | None:
        """The bytes after the last packet."""
        del done
        return None


class OneShot(Dialect):
    """`start` names the utterance UTTERANCE. After the session, `failed` tells what went wrong, None if nothing."""

    def __init__(self, name: str, start: Start, text: str, body: Body) -> None:
        self.name = name
        self.body = body
        self.failed: Failed | None = None
        self._steps: tuple[Step, ...] = (
            start,
            Text(type="text", utterance=UTTERANCE, text=text),
            End(type="end", utterance=UTTERANCE),
        )

    def tick(self, now_s: float) -> Iterable[Step]:
        del now_s
        steps, self._steps = self._steps, ()
        return steps

    def next_wake_s(self) -> float:
        return -math.inf if self._steps else math.inf

    def tell(self, message: ServerMessage) -> Iterable[Output]:
        match message:
            case Words():
                self.body.hear(message.words)
            case Done():
                rest = self.body.end(message)
                return (*((Say(rest),) if rest else ()), HangUp(CloseCode.NORMAL))
            case Failed() if self.failed is None:
                self.failed = message
                return (HangUp(CloseCode.NORMAL),)
        return ()

    def audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del utterance, now_s
        return self.body.audio(packet)
