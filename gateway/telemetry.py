"""Hands what the gateway observes to those who listen: metrics, traces, and a log line for each utterance."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .observer import Observer, UtteranceRecord

log = logging.getLogger(__name__)


class Telemetry(Observer):
    """Passes every call on to each of `observers`; one that fails is logged, and costs nobody's speech anything."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def session_opened(self, dialect: str, key: str) -> None:
        self._tell(lambda each: each.session_opened(dialect, key))

    def handshake_refused(self, reason: str) -> None:
        self._tell(lambda each: each.handshake_refused(reason))

    def error_sent(self, dialect: str, code: str) -> None:
        self._tell(lambda each: each.error_sent(dialect, code))

    def utterance_over(self, record: UtteranceRecord) -> None:
        self._tell(lambda each: each.utterance_over(record))

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

    def utterance_over(self, record: UtteranceRecord) -> None:
        fields = {
            "utterance": record.id,
            "dialect": record.dialect,
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
