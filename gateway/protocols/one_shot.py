"""The protocol of a plain HTTP request: the complete text of one utterance in, its audio out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..messages.client import End, Start, Text
from ..messages.connection import CloseCode
from ..messages.server import DoneMessage, ErrorMessage, ServerMessage, WordFields, WordsMessage
from ..session.outbox import AudioPacket
from ..session.protocol import Disconnect, ProtocolAction, ProtocolOutput, SendPayload, WireProtocol

ONE_SHOT_UTTERANCE = "speech"
"""The name of the only utterance."""


def voice_header(voice: str | None) -> dict[str, str]:
    """The header that names the voice of an answer, which differs from the requested one for aliases and stock voices.

    Empty without a voice, and for a name that no header can carry.
    """
    return {"x-voxgate-voice": voice} if voice and voice.isascii() and voice.isprintable() else {}


class ResponseBody:
    """Encodes the body of the response as the audio alone. Subclasses encode other shapes."""

    wants_words = False
    """Whether the utterance has to report word times."""

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type

    def add_words(self, words: Sequence[WordFields]) -> None:
        """Adds word times; they may come before or after the packet with their audio."""

    def encode_audio(self, packet: AudioPacket) -> bytes | None:
        """The bytes that carry a packet; None when nothing is to be sent for it."""
        return packet.payload or None

    def encode_end(self, done: DoneMessage) -> bytes | None:
        """The bytes after the last packet; None when there are none."""
        del done
        return None


class OneShotProtocol(WireProtocol):
    """Speaks `text` and disconnects.

    `start` names the utterance ONE_SHOT_UTTERANCE. `warning` names what of the request is not done; a header repeats
    it. After the session, `error` holds the first error that was reported, or None.
    """

    def __init__(self, name: str, start: Start, text: str, body: ResponseBody, warning: str = "") -> None:
        self.name = name
        self.body = body
        self.voice = start.voice
        self.headers = {"x-sample-rate": str(start.format.sample_rate), **voice_header(start.voice)}
        """Headers of the response beside its content type."""
        if warning:
            self.headers["x-voxgate-warning"] = warning
        self.error: ErrorMessage | None = None
        self._actions: tuple[ProtocolAction, ...] = (
            start,
            Text(type="text", utterance=ONE_SHOT_UTTERANCE, text=text),
            End(type="end", utterance=ONE_SHOT_UTTERANCE),
        )

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        actions, self._actions = self._actions, ()
        return actions

    def next_wake_s(self) -> float:
        return -math.inf if self._actions else math.inf

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        match message:
            case WordsMessage():
                self.body.add_words(message.words)
            case DoneMessage():
                end = self.body.encode_end(message)
                return (*((SendPayload(end),) if end else ()), Disconnect(CloseCode.NORMAL))
            case ErrorMessage() if self.error is None:
                self.error = message
                return (Disconnect(CloseCode.NORMAL),)
        return ()

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del utterance, now_s
        return self.body.encode_audio(packet)
