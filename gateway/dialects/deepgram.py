"""Deepgram over WebSockets: text in JSON, audio in binary messages, one turn after another; `/v1/speak` here.

A turn is an utterance from its first text to `Flush`; its talker slot is free between turns. docs/dialects.md has
the rules in full, `deepgram_v2.py` the words of Flux.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...pipeline.errors import BadMessage, EmptyText
from ..checked import checked
from ..effects import CloseCode
from ..messages import (
    TEXT_WAITED_OUT,
    Count,
    Done,
    Failed,
    Interrupt,
    Interrupted,
    Queued,
    ServerMessage,
    SessionOpened,
    Started,
    Warned,
)
from ..outbox import AudioPacket
from .catalogue import MODEL
from .deepgram_options import SpeakOptions, read_options, refuse
from .dialect import Dialect, HangUp, Output, Say, Step
from .endpoint import Endpoint
from .refusals import REFUSES_THE_MESSAGE
from .turns import Turn, Turns

VERSION = "1"


class Offset(BaseModel):
    """How much of the session's audio was played, in milliseconds."""

    value: Count


class Incoming(BaseModel):
    """Any message of a client; fields that we do nothing with are let pass."""

    model_config = ConfigDict(extra="ignore")

    type: str
    text: str = ""
    playback_offset: Offset | None = None
    speed: float | None = Field(None, allow_inf_nan=False)


class Deepgram(Dialect):
    """What both versions have in common."""

    name = "deepgram"
    serial = True

    def __init__(self, options: SpeakOptions) -> None:
        self._options = options
        self._turns = Turns(options.start)
        self._closing = False

    def receive(self, payload: str, now_s: float) -> Iterable[Step]:
        del now_s
        incoming = checked(Incoming, payload)
        return () if self._closing else self._take(incoming)

    def _take(self, incoming: Incoming) -> Iterable[Step]:
        match incoming.type:
            case "Speak":
                return tuple(self._turns.speak(incoming.text))
            case "Flush":
                return tuple(self._flush())
            case "Close":
                return tuple(self._close())
        raise BadMessage(f"unknown type {incoming.type[:50]!r}", param="type")

    def _flush(self) -> Iterable[Step]:
        yield from self._turns.complete()
        if self._turns.finished:
            yield from self._end_turn()

    def _close(self) -> Iterable[Step]:
        """What was said is finished, then the socket closes."""
        self._closing = True
        if self._turns.open_turn is not None:
            yield from self._flush()
        elif self._turns.idle:
            yield from self._hang_up()

    def tick(self, now_s: float) -> Iterable[Step]:
        del now_s
        steps = list(self._turns.next())
        if self._turns.finished:
            steps += self._end_turn()
        return steps

    def next_wake_s(self) -> float:
        return self._turns.next_wake_s()

    def tell(self, message: ServerMessage) -> Iterable[Output]:
        if isinstance(message, SessionOpened):
            return (self._greeting(),)
        if isinstance(message, Warned):
            if message.code == TEXT_WAITED_OUT:
                self._turns.close(message.utterance)
            return (self._warning(message.code.upper(), message.message),)
        if isinstance(message, Failed) and message.utterance is None:
            return (self._error(message),)
        turn = self._turns.live
        if turn is None or turn.name != getattr(message, "utterance", None):
            return ()
        match message:
            case Queued():
                turn.taken = True
            case Started():
                turn.taken = True
                return self._started(turn)
            case Done():
                turn.over = True
                turn.characters = message.characters
            case Interrupted():
                turn.characters = len(message.text_spoken) + len(message.text_remaining)
                return tuple(self._interrupted(turn, message))
            case Failed():
                return tuple(self._failed(turn, message))
        return tuple(self._end_turn()) if self._turns.finished else ()

    def _failed(self, turn: Turn, failed: Failed) -> Iterable[Output]:
        if turn.over:
            return  # its text came in the same breath as what was refused: one error is enough
        if failed.code != EmptyText.code:  # nothing to say is no mistake here
            turn.failed = True
            yield self._error(failed)
        if failed.code not in REFUSES_THE_MESSAGE or not turn.taken:
            # The end mark belongs to the client's Flush: a turn that fails before takes the rest of its text in.
            turn.over = True
            if turn.complete:
                yield from self._end_turn()

    def _end_turn(self) -> Iterable[Output]:
        turn = self._turns.live
        assert turn is not None
        self._turns.live = None
        yield from self._end_marks(turn)
        if self._closing and self._turns.idle:
            yield from self._hang_up()

    def _cut(self, turn: Turn, played_ms: int | None) -> Iterable[Step]:
        """Stop the live turn and forget those behind it."""
        if turn.started and not turn.over:
            self._turns.drop()
            self._turns.live = turn  # until its answer is there
            yield Interrupt(type="interrupt", utterance=turn.name, played_ms=played_ms)
        else:
            nothing = Interrupted(utterance=turn.name, played_ms=0, text_spoken="", text_remaining="")
            yield from self._interrupted(turn, nothing)

    def audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del now_s
        turn = self._turns.live
        if turn is None or turn.name != utterance:
            return None
        turn.samples += packet.header.samples
        return packet.payload or None

    def _audio_ms(self, turn: Turn) -> int:
        return turn.samples * 1000 // self._options.audio_format.sample_rate_hz

    # In the words of each version

    def _greeting(self) -> Output:
        raise NotImplementedError

    def _started(self, turn: Turn) -> Iterable[Output]:
        raise NotImplementedError

    def _end_marks(self, turn: Turn) -> Iterable[Output]:
        raise NotImplementedError

    def _interrupted(self, turn: Turn, message: Interrupted) -> Iterable[Output]:
        raise NotImplementedError

    def _warning(self, code: str, description: str) -> Output:
        return say(type="Warning", code=code, description=description, warn_code=code, warn_msg=description)

    def _error(self, failed: Failed) -> Output:
        raise NotImplementedError

    def _hang_up(self) -> Iterable[Output]:
        yield HangUp(CloseCode.NORMAL)


class SpeakV1(Deepgram):
    """Aura: `Flushed` after the audio of each flush, `Clear` to stop."""

    def __init__(self, options: SpeakOptions) -> None:
        super().__init__(options)
        self._sequence_id = 0

    def _take(self, incoming: Incoming) -> Iterable[Step]:
        if incoming.type == "Clear":
            turn = self._turns.live
            return (self._numbered("Cleared"),) if turn is None else tuple(self._cut(turn, None))
        return super()._take(incoming)

    def _greeting(self) -> Output:
        options = self._options
        return say(
            type="Metadata",
            request_id=options.request_id,
            model_name=options.voice,
            model_version=VERSION,
            model_uuid=MODEL,
        )

    def _started(self, turn: Turn) -> Iterable[Output]:
        del turn
        return ()

    def _end_marks(self, turn: Turn) -> Iterable[Output]:
        del turn
        yield self._numbered("Flushed")

    def _interrupted(self, turn: Turn, message: Interrupted) -> Iterable[Output]:
        del turn, message
        self._turns.drop()
        yield self._numbered("Cleared")

    def _error(self, failed: Failed) -> Output:
        code = failed.code.upper()
        return say(type="Error", code=code, description=failed.message, err_code=code, err_msg=failed.message)

    def _numbered(self, type: str) -> Output:
        said = say(type=type, sequence_id=self._sequence_id)
        self._sequence_id += 1
        return said


def say(**fields: Any) -> Say:
    """A message of these fields."""
    return Say(json.dumps(fields))


ENDPOINT = Endpoint("/v1/speak", lambda asked, offer: SpeakV1(read_options(asked, offer)), refuse)
