"""The utterances of one socket by name, and how an utterance ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from voxgate.pipeline.errors import EngineError, VoxgateError
from voxgate.pipeline.interface import Milestones

from ..errors import DuplicateUtterance, Limit, TooManyUtterances, UnknownUtterance, UtteranceEnded
from ..observability.events import Observer, UtteranceRecord
from .effects import CloseSpeech, EffectQueue
from .lifecycle import State
from .utterance import ServerUtterance

RECENT_LIMIT = 8
"""Done utterances that are kept, because their client still plays them and may interrupt or ack."""

log = logging.getLogger(__name__)


class ActiveUtterances:
    """Holds at most `limit` active utterances, queued ones included, and the `RECENT_LIMIT` last that are done."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active: dict[str, ServerUtterance] = {}
        self._recently_done: dict[str, ServerUtterance] = {}
        self._let_go: dict[str, None] = {}
        """Names of the `RECENT_LIMIT` held utterances that ended last, because their client may not know yet."""

    @property
    def active(self) -> tuple[ServerUtterance, ...]:
        return tuple(self._active.values())

    @property
    def recently_done(self) -> tuple[ServerUtterance, ...]:
        return tuple(self._recently_done.values())

    def check_free(self, name: str) -> None:
        """Raises DuplicateUtterance when an active utterance has that name."""
        if name in self._active:
            raise DuplicateUtterance(f"utterance {name!r} has not ended yet")

    def check_limit(self, *, raw: bool = False) -> None:
        """Raises TooManyUtterances when one more would exceed the limit.

        `raw`: its audio has no header, so that no other utterance may be active at that time.
        """
        if self._active and (raw or any(each.raw for each in self._active.values())):
            raise TooManyUtterances("a socket with an utterance of raw framing may have no other active utterance")
        if len(self._active) >= self._limit:
            message = f"a socket may have at most {self._limit} active utterances"
            raise TooManyUtterances(message, reached=Limit.UTTERANCES)

    def add(self, utterance: ServerUtterance) -> None:
        self._recently_done.pop(utterance.name, None)
        self._let_go.pop(utterance.name, None)
        self._active[utterance.name] = utterance

    def get(self, name: str) -> ServerUtterance | None:
        """Returns the active or recently done utterance of that name."""
        return self._active.get(name) or self._recently_done.get(name)

    def find(self, name: str) -> ServerUtterance:
        """As `get`. Raises UtteranceEnded for one that was held and let go, UnknownUtterance."""
        if (found := self.get(name)) is None:
            if name in self._let_go:
                raise UtteranceEnded(f"utterance {name!r} was held, and is let go")
            raise UnknownUtterance(f"there is no active utterance {name!r}")
        return found

    def remove(self, utterance: ServerUtterance) -> None:
        self._active.pop(utterance.name, None)
        self._recently_done.pop(utterance.name, None)

    def let_go(self, utterance: ServerUtterance) -> None:
        """Remembers the name of a held utterance that ends."""
        self._let_go[utterance.name] = None
        if len(self._let_go) > RECENT_LIMIT:
            del self._let_go[next(iter(self._let_go))]

    def finish(self, utterance: ServerUtterance) -> None:
        """Moves a done utterance to the recent ones."""
        self.remove(utterance)
        self._recently_done[utterance.name] = utterance
        if len(self._recently_done) > RECENT_LIMIT:
            del self._recently_done[next(iter(self._recently_done))]


class Termination:
    """Ends the utterances of one session: each is reported once, recorded once, and closes its speech once.

    Calls `on_ended(utterance, outcome)` once for each utterance, while it still holds its figures.
    """

    def __init__(
        self,
        session: str,
        utterances: ActiveUtterances,
        effects: EffectQueue,
        on_ended: Callable[[ServerUtterance, str], None],
    ) -> None:
        self._session = session
        self._utterances = utterances
        self._effects = effects
        self._on_ended = on_ended

    def fail_all(self, error: VoxgateError) -> None:
        """Ends every active utterance with `error`."""
        for utterance in self._utterances.active:
            self.fail(utterance, error)

    def fail(self, utterance: ServerUtterance, error: VoxgateError, message_id: str | None = None) -> None:
        """Ends an utterance with `error` and sends it, as the answer to the client's message `message_id` if given.

        Does nothing when the utterance has ended.
        """
        if utterance.ended:
            return
        partial = utterance.fail()
        self.end(utterance, error.code)
        ours = isinstance(error, EngineError)
        extra = {"session": self._session, "utterance": utterance.id, "code": error.code, "reached": error.reached}
        log.log(logging.WARNING if ours else logging.INFO, "utterance failed", extra=extra)
        partial_audio = partial if ours else None
        self._effects.send_error(error, utterance.name, message_id=message_id, partial_audio=partial_audio)

    def end(self, utterance: ServerUtterance, outcome: str) -> None:
        """Records an utterance in its final state, removes its queued audio, and closes its speech."""
        if not utterance.record_emitted:  # a done utterance can be interrupted afterwards
            utterance.record_emitted = True
            self._on_ended(utterance, outcome)
        if utterance.state is State.DONE:
            self._utterances.finish(utterance)
        else:
            self._utterances.remove(utterance)
            self._effects.drop_audio(utterance)
        self.close_speech(utterance)

    def close_speech(self, utterance: ServerUtterance) -> None:
        """Has the utterance's speech closed and its slot released. Safe to call twice."""
        if not utterance.speech_closed:
            utterance.speech_closed = True
            self._effects.add(CloseSpeech(utterance))


def make_reporters(
    observer: Observer, protocol: str, key: str
) -> tuple[Callable[[VoxgateError], None], Callable[[ServerUtterance, str], None]]:
    """What reports errors and ended utterances of a session to `observer`.

    They do not refer to the session, so that an ended one is freed at once: collecting garbage would stop all sockets.
    """

    def on_error(error: VoxgateError) -> None:
        observer.error_sent(protocol, error.code, error.reached)

    def on_ended(utterance: ServerUtterance, outcome: str) -> None:
        observer.utterance_ended(to_record(utterance, protocol, key, outcome))

    return on_error, on_ended


def to_record(utterance: ServerUtterance, protocol: str, key: str, outcome: str) -> UtteranceRecord:
    """Returns the figures of an utterance for the observers."""
    figures, speech = utterance.figures, utterance.speech
    sent_here = max(0, utterance.pacer.sent_samples - utterance.pacer.skipped_samples)
    return UtteranceRecord(
        id=utterance.id,
        protocol=protocol,
        key=key,
        outcome=outcome,
        voice=utterance.request.voice,
        codec=utterance.audio_format.codec,
        characters=utterance.text.length,
        audio_s=sent_here / utterance.audio_format.sample_rate_hz,
        audio_bytes=utterance.outbox.sent_bytes,
        underruns=figures.underruns,
        underrun_s=figures.underrun_s,
        continued=figures.continued,
        changes=dict(figures.changes),
        silence_s=figures.silence_s,
        started_s=figures.started_s,
        queued_s=figures.queued_s,
        granted_s=figures.granted_s,
        text_s=figures.text_s,
        first_packet_s=figures.first_packet_s,
        milestones=figures.milestones or (Milestones() if speech is None else speech.milestones),
        traceparent=utterance.traceparent,
    )
