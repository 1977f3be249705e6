"""Everyone who listens is told, whatever becomes of the others; and what the log says of an utterance."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from voxgate.gateway.observer import Observer, UtteranceRecord
from voxgate.gateway.telemetry import Telemetry, UsageLog

from .test_metrics import RECORD


class Notes(Observer):
    """Notes every call, by its name and arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def session_opened(self, dialect: str, key: str) -> None:
        self.seen.append(("session_opened", dialect, key))

    def handshake_refused(self, reason: str) -> None:
        self.seen.append(("handshake_refused", reason))

    def error_sent(self, dialect: str, code: str) -> None:
        self.seen.append(("error_sent", dialect, code))

    def utterance_over(self, record: UtteranceRecord) -> None:
        self.seen.append(("utterance_over", record))

    def engine_ready(self) -> None:
        self.seen.append(("engine_ready",))


class Broken(Observer):
    def utterance_over(self, record: UtteranceRecord) -> None:
        raise ZeroDivisionError(record.id)


CALLS = [
    ("session_opened", "native", "team-a"),
    ("handshake_refused", "draining"),
    ("error_sent", "native", "bad_message"),
    ("utterance_over", RECORD),
    ("engine_ready",),
]


def test_everyone_hears_everything() -> None:
    first, second = Notes(), Notes()
    telemetry = Telemetry((first, second))
    for name, *arguments in CALLS:
        getattr(telemetry, str(name))(*arguments)
    assert first.seen == second.seen == CALLS
    own = {name for name in vars(Observer) if not name.startswith("_")}
    assert own == {name for name, *_ in CALLS}, "a call that is not passed on is lost"


def test_one_that_fails_takes_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes()
    Telemetry((Broken(), notes)).utterance_over(RECORD)
    assert notes.seen == [("utterance_over", RECORD)]
    assert "an observer failed" in caplog.text


def test_one_line_for_each_utterance(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        UsageLog().utterance_over(replace(RECORD, outcome="engine_lost", first_packet_s=None, key=""))
    (line,) = caplog.records
    told = {name: value for name, value in vars(line).items() if name in ("utterance", "key", "outcome", "ttfa_ms")}
    assert told == {"utterance": "r-1.1", "key": None, "outcome": "engine_lost", "ttfa_ms": None}
    assert (vars(line)["characters"], vars(line)["audio_ms"], vars(line)["queue_ms"]) == (20, 2000, 500)
