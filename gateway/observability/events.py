"""What the gateway tells of its work: called when things begin, end or are refused, never for a packet.

The calls sit where sessions and sockets are decided about; what becomes of them (metrics, traces, log lines) is
`telemetry.py`. An `Observer` itself ignores them all, so that whoever drives a session without it needs nothing.
"""
# TODO-DOC Hands what the gateway observes to those who listen: metrics, traces, and a log line for each utterance.

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voxgate.pipeline.interface import Milestones

DONE = "done"
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class UtteranceRecord:
    """One utterance, told once when it is over. Times `_s` are points on the loop's clock, durations in seconds."""

    id: str
    """The one name it has in logs and traces, unique over all gateways."""
    protocol: str
    key: str
    """The name of the client's key; empty when clients need none."""
    outcome: str
    """DONE, INTERRUPTED, or the code of the error that ended it."""
    voice: str
    codec: str
    characters: int
    audio_s: float
    """Audio sent."""
    audio_bytes: int
    underruns: int
    """How often the listener's clock ran dry with text still to be spoken."""
    underrun_s: float
    """How long it was dry, in all."""
    started_s: float
    granted_s: float | None
    """When it got a talker slot; None when it never did."""
    text_s: float | None
    """When its first text arrived."""
    first_packet_s: float | None
    milestones: Milestones = field(default_factory=Milestones)

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio: from the first text to the first packet, waiting for a slot included."""
        if self.text_s is None or self.first_packet_s is None:
            return None
        return self.first_packet_s - self.text_s

    @property
    def queue_wait_s(self) -> float | None:
        return None if self.granted_s is None else self.granted_s - self.started_s


class Observer:
    """Ignores everything; subclass it to listen. Calls must return at once and must not raise."""

    def session_opened(self, protocol: str, key: str) -> None:
        """A socket (or a request) was taken, from the holder of `key` (empty where clients need none)."""

    def handshake_refused(self, reason: str) -> None:
        """A socket or request was refused before it became a session; `reason` is one of few constant words."""

    def error_sent(self, protocol: str, code: str) -> None:
        """A client was told of an error, whether it ended an utterance or only refused a message."""

    def utterance_ended(self, record: UtteranceRecord) -> None:
        """An utterance ended, however it did."""

    def engine_ready(self) -> None:
        """The voice model was loaded, for the first time or again."""


log = logging.getLogger(__name__)


class CompositeObserver(Observer):
    """Passes every call on to each of `observers`; one that fails is logged, and costs nobody's speech anything."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def session_opened(self, protocol: str, key: str) -> None:
        self._tell(lambda each: each.session_opened(protocol, key))

    def handshake_refused(self, reason: str) -> None:
        self._tell(lambda each: each.handshake_refused(reason))

    def error_sent(self, protocol: str, code: str) -> None:
        self._tell(lambda each: each.error_sent(protocol, code))

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self._tell(lambda each: each.utterance_ended(record))

    def engine_ready(self) -> None:
        self._tell(lambda each: each.engine_ready())

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for each in self._observers:
            try:
                call(each)
            except Exception:
                log.exception("an observer failed")


class UsageLog(Observer):
    """One log line for each utterance: what it came to, and whose it was. No text of the client's is in it."""

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
        }
        log.info("utterance over", extra=fields)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)
