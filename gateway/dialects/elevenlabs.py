"""ElevenLabs over WebSockets: `multi-stream-input`, many contexts on a socket, and `stream-input`, one utterance.

A context is an utterance that begins with its first text to be spoken. What ends it: `close_context` once
everything is flushed lets it finish; with text unflushed, or said twice, it stops at once, which is how both
agent frameworks interrupt. docs/dialects.md has the rules in full.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable

from ...pipeline.errors import EmptyText
from ..checked import checked
from ..effects import CloseCode
from ..messages import (
    Done,
    End,
    Failed,
    Flush,
    Interrupt,
    Interrupted,
    Queued,
    ServerMessage,
    Started,
    Text,
    Words,
)
from ..outbox import AudioPacket
from .dialect import Dialect, HangUp, Output, Say, Step
from .elevenlabs_options import SpeechOptions, read_options, refuse, slug_of
from .elevenlabs_wire import Context, Incoming, audio_fields, error_fields, find_key
from .endpoint import Endpoint, LateKey
from .refusals import REFUSES_THE_MESSAGE

MAX_CONTEXTS = 5
_DEFAULT_CONTEXT = "default"


class ElevenLabs(Dialect):
    """What both kinds of socket have in common: contexts, and how their utterances are told of."""

    name = "elevenlabs"

    def __init__(self, options: SpeechOptions) -> None:
        self._options = options
        self._contexts: dict[str, Context] = {}
        """By utterance."""
        self._numbers = itertools.count(1)

    # To the utterances

    def _open(self, id: str | None, now_s: float) -> Context:
        context = Context(id, f"context-{next(self._numbers)}", self._options, now_s)
        self._contexts[context.name] = context
        return context

    def _speak(self, context: Context, text: str) -> Iterable[Step]:
        if not context.started and not text.strip():
            return
        if not context.started:
            context.started = True
            yield self._options.start(context.name)
        if self._options.auto_mode and not text[-1].isspace():
            text += " "  # or the next sentence would be glued to this one
        context.unflushed = context.unflushed or not text.isspace()
        context.offered = text
        context.alignment.add_text(text)
        yield Text(type="text", utterance=context.name, text=text)
        if self._options.auto_mode:
            yield Flush(type="flush", utterance=context.name)

    def _flush(self, context: Context) -> Iterable[Step]:
        context.unflushed = False
        if context.started:
            yield Flush(type="flush", utterance=context.name)

    def _end(self, context: Context) -> Iterable[Step]:
        context.closing = True
        if context.started:
            yield End(type="end", utterance=context.name)
        else:
            yield from self._over(context)

    def _stop(self, context: Context) -> Iterable[Step]:
        if context.started:
            yield Interrupt(type="interrupt", utterance=context.name)
        else:
            yield from self._over(context)

    # From the session

    def tell(self, message: ServerMessage) -> Iterable[Output]:
        if isinstance(message, Failed) and message.utterance is None:
            return (Say(json.dumps(error_fields(slug_of(message), message.message))),)
        context = self._contexts.get(getattr(message, "utterance", None) or "")
        if context is None:
            return ()
        match message:
            case Queued() | Started():
                context.taken = True
            case Words():
                context.alignment.add_words(message.words)
            case Done():
                rest = context.alignment.rest()
                last = () if rest is None else (context.tell(**audio_fields(b"", rest)),)
                return (*last, *self._over(context))
            case Interrupted():
                return tuple(self._over(context))
            case Failed():
                return tuple(self._failed(context, message))
        return ()

    def _failed(self, context: Context, failed: Failed) -> Iterable[Output]:
        why = "" if failed.code == EmptyText.code else slug_of(failed)  # nothing to say is no mistake here
        if why:
            yield context.tell(**error_fields(why, failed.message))
        if failed.code not in REFUSES_THE_MESSAGE or not context.taken:
            yield from self._over(context, why)
        elif context.offered:
            context.alignment.take_back(context.offered)
            context.offered = ""

    def _over(self, context: Context, why: str = "") -> Iterable[Output]:
        """Nothing of the context follows but the mark that says so: frameworks wait for it whatever happened.

        `why`: the slug of the error that ended it.
        """
        del why
        del self._contexts[context.name]
        yield context.tell(isFinal=True) if context.id is not None else context.tell(audio=None, isFinal=True)

    def audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | None:
        context = self._contexts.get(utterance)
        if context is None:
            return None
        context.active_s = now_s
        header = packet.header
        rate_hz = self._options.audio_format.sample_rate_hz
        if header.last:
            characters = context.alignment.rest()
        else:
            characters = context.alignment.until((header.pts + header.samples) * 1000 / rate_hz)
        if not packet.payload and characters is None:
            return None
        return context.encode(**audio_fields(packet.payload, characters))

    # By itself

    def tick(self, now_s: float) -> Iterable[Step]:
        """Contexts that nobody uses do not keep their talker slots."""
        idle = [each for each in self._contexts.values() if not each.closing and self._idle_s(each) <= now_s]
        return tuple(step for context in idle for step in self._time_out(context))

    def next_wake_s(self) -> float:
        return min((self._idle_s(each) for each in self._contexts.values() if not each.closing), default=math.inf)

    def _idle_s(self, context: Context) -> float:
        return context.active_s + self._options.inactivity_s

    def _time_out(self, context: Context) -> Iterable[Step]:
        message = f"no text for {self._options.inactivity_s:g} seconds"
        slug = "input_timeout_exceeded"
        yield context.tell(**error_fields(slug, message))
        if context.started:
            yield Interrupt(type="interrupt", utterance=context.name)
        yield from self._over(context, slug)


class MultiStream(ElevenLabs):
    """`multi-stream-input`: contexts by the client's ids."""

    def __init__(self, options: SpeechOptions) -> None:
        super().__init__(options)
        self._closing = False

    def receive(self, payload: str, now_s: float) -> Iterable[Step]:
        incoming = checked(Incoming, payload)
        if self._closing:
            return ()
        if incoming.close_socket:
            return tuple(self._close())
        id = incoming.context_id or (_DEFAULT_CONTEXT if incoming.text else None)
        context = next((each for each in self._contexts.values() if each.id == id and id is not None), None)
        if context is None:
            return tuple(self._begin(id, incoming, now_s))
        context.active_s, context.offered = now_s, ""
        return tuple(self._go_on(context, incoming))

    def _begin(self, id: str | None, incoming: Incoming, now_s: float) -> Iterable[Step]:
        if id is None or not incoming.text:
            return  # a keep-alive, or the echo of a context that has ended
        if len(self._contexts) >= MAX_CONTEXTS:
            refused = Context(id, "", self._options, now_s)
            message = f"a socket has at most {MAX_CONTEXTS} contexts"
            yield refused.tell(**error_fields("max_active_conversations", message))
            yield refused.tell(isFinal=True)
            return
        yield from self._go_on(self._open(id, now_s), incoming)

    def _go_on(self, context: Context, incoming: Incoming) -> Iterable[Step]:
        if context.closing:
            if incoming.close_context:
                yield from self._stop(context)
            return
        if incoming.text:
            yield from self._speak(context, incoming.text)
        if incoming.flush:
            yield from self._flush(context)
        if incoming.close_context:
            yield from self._stop(context) if context.unflushed else self._end(context)

    def _close(self) -> Iterable[Step]:
        self._closing = True
        for context in [each for each in self._contexts.values() if not each.closing]:
            yield from self._end(context)
        if not self._contexts:
            yield HangUp(CloseCode.NORMAL)

    def _over(self, context: Context, why: str = "") -> Iterable[Output]:
        yield from super()._over(context, why)
        if self._closing and not self._contexts:
            yield HangUp(CloseCode.NORMAL)


class SingleStream(ElevenLabs):
    """`stream-input`: one utterance, which an empty text ends, and the socket with it."""

    def __init__(self, options: SpeechOptions) -> None:
        super().__init__(options)
        self._context: Context | None = None
        self._ended = False

    def receive(self, payload: str, now_s: float) -> Iterable[Step]:
        incoming = checked(Incoming, payload)
        if self._ended:
            return ()
        context = self._context = self._context or self._open(None, now_s)
        context.active_s, context.offered = now_s, ""
        return tuple(self._go_on(context, incoming))

    def _go_on(self, context: Context, incoming: Incoming) -> Iterable[Step]:
        if incoming.text:
            yield from self._speak(context, incoming.text)
        if incoming.flush:
            yield from self._flush(context)
        if incoming.text == "":
            yield from self._end(context)

    def _over(self, context: Context, why: str = "") -> Iterable[Output]:
        self._ended = True
        yield from super()._over(context, why)
        yield HangUp(CloseCode.POLICY if why else CloseCode.NORMAL, why)


_PATH = "/v1/text-to-speech/{voice}"
_LATE_KEY = LateKey(find_key, lambda error: json.dumps(error_fields(slug_of(error), error.message)))
ENDPOINTS = (
    Endpoint(
        f"{_PATH}/multi-stream-input", lambda asked, offer: MultiStream(read_options(asked, offer)), refuse, _LATE_KEY
    ),
    Endpoint(f"{_PATH}/stream-input", lambda asked, offer: SingleStream(read_options(asked, offer)), refuse, _LATE_KEY),
)
