"""Cartesia's socket `/tts/websocket`: contexts, each a queue of turns that flushes divide.

A context begins with its first text that is not blank and keeps the options of that message. It ends with `done`, with
an error or with a cancel. The turns of a context are spoken one after another, contexts at the same time.
docs/service_protocols.md has all rules.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import Field
from voxgate.pipeline.errors import EmptyText

from ...errors import TooManyUtterances
from ...messages.client import Flush, Interrupt
from ...messages.parsing import MessageReference, parse_json, read_id
from ...messages.server import (
    TEXT_WAITED_OUT,
    AcceptedMessage,
    DoneMessage,
    ErrorMessage,
    ServerMessage,
    WarningMessage,
    WordFields,
    WordsMessage,
)
from ...session.outbox import AudioPacket
from ...session.protocol import MESSAGE_ERROR_CODES, ProtocolAction, ProtocolOutput, SendPayload, WireProtocol
from ...session.utterance_factory import UtteranceFactory
from ..endpoint import WebSocketEndpoint
from ..payloads import base64_text, json_message
from ..turn_queue import SpeechTurn, TurnQueue
from .request import NAME, CartesiaOptions, SpeechOptions, error_fields, read_options, refuse, word_timestamps

MAX_CONTEXTS = 64
"""Contexts of a socket at once. Those that speak are bounded further, as utterances of a session."""
CONTAINERS = ("raw",)
"""Values of `container`: an audio message is a part of a stream, not a file."""
_OK, _PARTIAL = 200, 206
_END_CHARACTERS = 16
"""Characters of a text that are examined for the end of a sentence."""
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]»」』]*\s*\Z")  # noqa: RUF001 - marks of other scripts


class EndMarks(NamedTuple):
    """The messages that follow the last audio of a turn."""

    flush_done: bool
    done: bool


class CartesiaMessage(SpeechOptions):
    """Any message of a client. Other fields are accepted and ignored."""

    transcript: str = ""
    continues: bool | None = Field(None, alias="continue")
    flush: bool | None = None
    cancel: bool | None = None
    max_buffer_delay_ms: float | None = None

    @property
    def end_marks(self) -> EndMarks:
        """What follows the audio of the text so far: without `continue`, the context gets no more text."""
        return EndMarks(flush_done=bool(self.flush), done=not self.continues)

    @property
    def text(self) -> str:
        """The text to append: a sentence is separated from the next one, which some clients leave out."""
        return self.transcript + " " if self.sentence and not self.transcript[-1].isspace() else self.transcript

    @property
    def sentence(self) -> bool:
        """Whether the text is to be spoken to its end at once.

        Clients that forbid the service to buffer text send whole sentences; single words are fragments all the same.
        """
        return self.max_buffer_delay_ms == 0 and _SENTENCE_END.search(self.transcript[-_END_CHARACTERS:]) is not None


def encode_message(id: str | None, type: str, status: int = _PARTIAL, *, done: bool = False, **fields: Any) -> str:
    """A message about the context `id`."""
    return json.dumps({"type": type, "context_id": id, "status_code": status, "done": done, **fields})


def encode_end(id: str, marks: EndMarks, flush_id: int) -> Iterable[str]:
    """The end marks of a turn, whose number is `flush_id`."""
    if marks.flush_done:
        yield encode_message(id, "flush_done", flush_done=True, flush_id=flush_id)
    if marks.done:
        yield encode_message(id, "done", _OK, done=True)


class CartesiaContext:
    """One context: its turns, and how far it is."""

    def __init__(self, id: str, options: CartesiaOptions, numbers: Iterator[int], now_s: float) -> None:
        """`numbers` are those of the utterances' names, for all contexts of the socket."""
        self.id = id
        self.turns = TurnQueue(options.start, numbers)
        self.marks: deque[EndMarks] = deque()
        """Of the turns whose text is complete, in order."""
        self.flush_id = 1
        """Number of the turn that is spoken, as flushes count them."""
        self._rate_hz = options.audio_format.sample_rate_hz
        self._samples = 0
        """Samples of audio of earlier turns."""
        self._step_s = now_s
        """Time of the last message with audio."""

    def encode_audio(self, turn: SpeechTurn, packet: AudioPacket, now_s: float) -> str | None:
        """The message that carries a packet of `turn`; None for a packet without audio."""
        turn.samples += packet.header.samples
        if not packet.payload:
            return None
        step_ms, self._step_s = (now_s - self._step_s) * 1000, now_s
        data = base64_text(packet.payload)
        return encode_message(self.id, "chunk", data=data, step_time=round(step_ms, 3), flush_id=self.flush_id)

    def encode_words(self, words: Iterable[WordFields]) -> str:
        """The message with the times of `words`, in seconds from the start of the context."""
        times = word_timestamps(words, self._samples / self._rate_hz)
        return encode_message(self.id, "timestamps", word_timestamps=times, flush_id=self.flush_id)

    def end_turn(self) -> Iterable[str]:
        """Forgets the live turn; returns its end marks."""
        assert self.turns.live is not None
        self._samples += self.turns.live.samples
        self.turns.live = None
        marks = self.marks.popleft()
        yield from encode_end(self.id, marks, self.flush_id)
        self.flush_id += marks.flush_done


class Cartesia(WireProtocol):
    """The contexts of one socket."""

    name = NAME
    reports_spoken_text = False
    clients_buffer = True

    def __init__(self, factory: UtteranceFactory) -> None:
        self._factory = factory
        self._contexts: dict[str, CartesiaContext] = {}
        self._numbers = itertools.count(1)
        self._abandoned: list[str] = []
        """Utterances that speak on after an error ended their context; to be stopped."""

    # From the client

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        incoming = parse_json(CartesiaMessage, payload)
        id = incoming.context_id or str(uuid.uuid4())
        context = self._contexts.get(id)
        if incoming.cancel:
            return () if context is None else tuple(self._cancel(context))
        if context is None and not incoming.transcript.strip():
            return tuple(map(SendPayload, encode_end(id, incoming.end_marks, 1)))
        return tuple(self._apply(context or self._open(id, incoming, now_s), incoming))

    def refers_to(self, payload: str) -> MessageReference:
        return MessageReference(id=read_id(payload, "context_id"))

    def _open(self, id: str, incoming: CartesiaMessage, now_s: float) -> CartesiaContext:
        options = read_options(incoming, self._factory, CONTAINERS)
        if len(self._contexts) >= MAX_CONTEXTS:
            self._forget_idle_context()
        context = self._contexts[id] = CartesiaContext(id, options, self._numbers, now_s)
        return context

    def _forget_idle_context(self) -> None:
        """Forgets the oldest context that waits for text behind a flush. Raises TooManyUtterances if none does."""
        idle = next((context for context in self._contexts.values() if context.turns.idle), None)
        if idle is None:
            raise TooManyUtterances(f"a socket may have at most {MAX_CONTEXTS} contexts")
        del self._contexts[idle.id]

    def _apply(self, context: CartesiaContext, incoming: CartesiaMessage) -> Iterable[ProtocolAction]:
        turns = context.turns
        if incoming.transcript.strip() or turns.open_turn is not None:
            yield from turns.add_text(incoming.text)
        if any(incoming.end_marks):
            yield from turns.complete_text()
            context.marks.append(incoming.end_marks)
            if turns.live_finished:
                yield from self._end_turn(context)
        elif incoming.sentence and turns.live is not None and turns.live is turns.open_turn:
            yield Flush(type="flush", utterance=turns.live.name)

    def _cancel(self, context: CartesiaContext) -> Iterable[ProtocolAction]:
        """Stops the context; no message about it follows."""
        del self._contexts[context.id]
        turn = context.turns.live
        if turn is not None and turn.requested and not turn.ended:
            yield Interrupt(type="interrupt", utterance=turn.name)

    # To the client

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        if isinstance(message, ErrorMessage) and message.utterance is None:
            return tuple(self._fail(message.id, message))
        found = self._find(getattr(message, "utterance", None))
        if found is None:
            return ()
        context, turn = found
        match message:
            case AcceptedMessage():
                turn.accepted = True
            case WordsMessage():
                return (SendPayload(context.encode_words(message.words)),)
            case WarningMessage(code=code) if code == TEXT_WAITED_OUT:
                context.turns.complete_live(turn.name)
                context.marks.append(EndMarks(flush_done=False, done=True))
            case DoneMessage():
                turn.ended = True
            case ErrorMessage(code=code) if code == EmptyText.code:  # an empty turn is valid here
                turn.ended = True
            case ErrorMessage():
                return tuple(self._fail(context.id, message))
        return tuple(self._end_turn(context)) if context.turns.live_finished else ()

    def _find(self, utterance: str | None) -> tuple[CartesiaContext, SpeechTurn] | None:
        for context in self._contexts.values():
            if (turn := context.turns.live) is not None and turn.name == utterance:
                return context, turn
        return None

    def _fail(self, id: str | None, error: ErrorMessage) -> Iterable[ProtocolOutput]:
        """Ends a context, if there is one of that id, with the error."""
        context = self._contexts.pop(id or "", None)
        turn = None if context is None else context.turns.live
        if turn is not None and turn.accepted and not turn.ended and error.code in MESSAGE_ERROR_CODES:
            self._abandoned.append(turn.name)
        yield json_message(type="error", context_id=id, done=True, **error_fields(error))

    def _end_turn(self, context: CartesiaContext) -> Iterable[ProtocolOutput]:
        done = context.marks[0].done
        yield from map(SendPayload, context.end_turn())
        if done and context.turns.idle:
            del self._contexts[context.id]

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | None:
        found = self._find(utterance)
        if found is None:
            return None
        context, turn = found
        return context.encode_audio(turn, packet, now_s)

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        """Stops what is spoken for no context, and begins the turns whose predecessors have ended."""
        del now_s
        abandoned, self._abandoned = self._abandoned, []
        actions: list[ProtocolAction] = [Interrupt(type="interrupt", utterance=name) for name in abandoned]
        for context in tuple(self._contexts.values()):
            actions += context.turns.start_next()
            if context.turns.live_finished:
                actions += self._end_turn(context)
        return actions

    def next_wake_s(self) -> float:
        if self._abandoned:
            return -math.inf
        return min((context.turns.next_wake_s() for context in self._contexts.values()), default=math.inf)


ENDPOINT = WebSocketEndpoint(
    "/tts/websocket",
    lambda request, factory: Cartesia(factory),  # noqa: ARG005 - options come with the messages
    refuse,
    reads_when_idle=False,
)
