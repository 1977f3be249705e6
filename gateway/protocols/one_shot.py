"""Speech whose text is known whole, the protocol of plain HTTP: one utterance, its audio, the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..messages import CloseCode, DoneMessage, End, ErrorMessage, ServerMessage, Start, Text, WordFields, WordsMessage
from ..session.outbox import AudioPacket
from ..session.protocol import Disconnect, ProtocolAction, ProtocolOutput, SendPayload, WireProtocol

ONE_SHOT_UTTERANCE = "speech"
"""The name of the only utterance."""


class ResponseBody:
    """What a response is made of: the audio as it is. Subclass it for other shapes."""

    words = False
    """Word times are wanted."""

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type

    def hear(self, words: Sequence[WordFields]) -> None:
        """Words of audio that leaves later, or has left."""

    def audio(self, packet: AudioPacket) -> bytes | None:
        """The bytes that carry a packet."""
        return packet.payload or None

    def end(self, done: DoneMessage) -> bytes | None:
        """The bytes after the last packet."""
        del done
        return None


class OneShotProtocol(WireProtocol):
    """`start` names the utterance ONE_SHOT_UTTERANCE. After the session, `failed` tells what went wrong, None if nothing."""

    def __init__(self, name: str, start: Start, text: str, body: ResponseBody) -> None:
        self.name = name
        self.body = body
        self.failed: ErrorMessage | None = None
        self._steps: tuple[ProtocolAction, ...] = (
            start,
            Text(type="text", utterance=ONE_SHOT_UTTERANCE, text=text),
            End(type="end", utterance=ONE_SHOT_UTTERANCE),
        )

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        steps, self._steps = self._steps, ()
        return steps

    def next_wake_s(self) -> float:
        return -math.inf if self._steps else math.inf

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        match message:
            case WordsMessage():
                self.body.hear(message.words)
            case DoneMessage():
                rest = self.body.end(message)
                return (*((SendPayload(rest),) if rest else ()), Disconnect(CloseCode.NORMAL))
            case ErrorMessage() if self.failed is None:
                self.failed = message
                return (Disconnect(CloseCode.NORMAL),)
        return ()

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del utterance, now_s
        return self.body.audio(packet)
