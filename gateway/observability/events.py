"""Events of the gateway: sessions and utterances that begin, end or are refused; never a single packet.

Sessions and sockets call an `Observer`; metrics, traces and the usage log are observers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from voxgate.pipeline.interface import Milestones

from .log import DefectLog
from .utterance_figures import Change

DONE = "done"
INTERRUPTED = "interrupted"
DETACHED, RESUMED, EXPIRED, REFUSED = "detached", "resumed", "expired", "refused"


@dataclass(frozen=True, slots=True)
class UtteranceRecord:
    """One utterance, reported at its end. Times are on the event loop's clock, in seconds."""

    id: str
    """Its id in logs and traces, unique over all gateways."""
    protocol: str
    key: str
    """Name of the client's key; empty without keys."""
    outcome: str
    """DONE, INTERRUPTED, or the code of the error that ended it."""
    voice: str
    codec: str
    characters: int
    audio_s: float
    """Seconds of audio sent."""
    audio_bytes: int
    underruns: int
    """Times the playback clock ran dry with text still to be spoken."""
    underrun_s: float
    """Total duration of underruns in seconds."""
    continued: int
    """Times it went on in the next engine after a loss."""
    changes: Mapping[Change, int]
    """How often it was restored, held, continued and retracted."""
    silence_s: float
    """Time without audio because of such losses, which is no underrun."""
    started_s: float
    queued_s: float | None
    """When it asked for a slot, with its first speakable text; None when it never did."""
    granted_s: float | None
    """Time of admission; None when it was never admitted."""
    text_s: float | None
    """Time of its first text."""
    first_packet_s: float | None
    milestones: Milestones = field(default_factory=Milestones)
    traceparent: str | None = None
    """The client's trace (W3C Trace Context), of which the utterance is a part."""

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio in seconds: from the first text to the first packet, queueing included."""
        if self.text_s is None or self.first_packet_s is None:
            return None
        return self.first_packet_s - self.text_s

    @property
    def queue_wait_s(self) -> float | None:
        if self.queued_s is None or self.granted_s is None:
            return None
        return self.granted_s - self.queued_s


class Observer:
    """Ignores all events; subclasses override methods, which must return at once and must not raise."""

    def session_opened(self, protocol: str, key: str) -> None:
        """A socket or request was accepted from the holder of `key`, which is empty without keys."""

    def handshake_refused(self, reason: str, reached: str | None = None) -> None:
        """A socket or request was refused before it became a session, by the limit `reached` if it was one.

        `reason` is an error code.
        """

    def error_sent(self, protocol: str, code: str, reached: str | None = None) -> None:
        """An error was sent to a client; it ended an utterance or refused a message, by a limit or not."""

    def utterance_ended(self, record: UtteranceRecord) -> None:
        """An utterance ended."""

    def engine_ready(self) -> None:
        """The voice model was loaded, for the first time or again."""

    def resumption(self, event: str) -> None:
        """A session lost its connection, was resumed, or ended without (DETACHED, RESUMED, EXPIRED); or a resume was
        REFUSED."""


log = logging.getLogger(__name__)


class CompositeObserver(Observer):
    """Passes every event to each of `observers`; an exception of one is logged and affects no speech."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._defects = DefectLog(log)

    def session_opened(self, protocol: str, key: str) -> None:
        self._notify(lambda each: each.session_opened(protocol, key))

    def handshake_refused(self, reason: str, reached: str | None = None) -> None:
        self._notify(lambda each: each.handshake_refused(reason, reached))

    def error_sent(self, protocol: str, code: str, reached: str | None = None) -> None:
        self._notify(lambda each: each.error_sent(protocol, code, reached))

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self._notify(lambda each: each.utterance_ended(record))

    def engine_ready(self) -> None:
        self._notify(lambda each: each.engine_ready())

    def resumption(self, event: str) -> None:
        self._notify(lambda each: each.resumption(event))

    def _notify(self, call: Callable[[Observer], None]) -> None:
        for each in self._observers:
            try:
                call(each)
            except Exception as error:
                self._defects.report("an observer failed", error, time.monotonic())


class UsageLog(Observer):
    """Logs one record per utterance, by which use can be billed. It contains no text of the client."""

    def utterance_ended(self, record: UtteranceRecord) -> None:
        fields = {
            "utterance": record.id,
            "protocol": record.protocol,
            "key": record.key or None,
            "outcome": record.outcome,
            "characters": record.characters,
            "audio_ms": round(1000 * record.audio_s),
            "ttfa_ms": _ms(record.ttfa_s),
            "queue_ms": _ms(record.queue_wait_s),
            "underruns": record.underruns,
            "continued": record.continued,
            "changes": dict(record.changes),
        }
        log.info("utterance over", extra=fields)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)
