"""Events reach every observer, and the usage log has one record per utterance."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.records import RECORD
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run
from voxgate.gateway.observability.events import (
    DONE,
    INTERRUPTED,
    CompositeObserver,
    Observer,
    UsageLog,
    UtteranceRecord,
)
from voxgate.gateway.observability.utterance_figures import Change

TEXT = "Twenty characters it"


class RecordingObserver(Observer):
    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []
        self.errors: list[str] = []
        self.limits: list[str | None] = []

    def error_sent(self, protocol: str, code: str, reached: str | None = None) -> None:
        assert protocol == "native"
        self.errors.append(code)
        self.limits.append(reached)

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self.records.append(record)


def test_phases_of_a_complete_utterance() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(observer=notes) as bench:
            socket = bench.connect()
            await asyncio.sleep(1)
            say(socket, "a", TEXT)
            done = await socket.until("done")
            await asyncio.sleep(1)
        (record,) = notes.records
        assert (record.outcome, record.id, record.codec, record.voice) == (DONE, "s0.1", "pcm", "ada")
        assert (record.characters, record.audio_s) == (20, pytest.approx(0.8))
        assert record.audio_bytes == sum(len(payload) for _, payload in socket.audio())
        assert round(1000 * (record.ttfa_s or 0.0)) == done["ttfa_ms"]
        assert (record.queue_wait_s, record.underruns, record.underrun_s) == (0.0, 0, 0.0)
        assert record.milestones.first_frame_s is not None

    run(scene())


def test_queue_wait_is_observed() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(ToneScript(frame_s=0.05), observer=notes, slots=1) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(0.25)
            say(socket, "b", TEXT)
            await socket.until("done", 2)
        first, second = notes.records
        assert first.queue_wait_s == 0.0
        assert second.queue_wait_s == pytest.approx(10 * 0.05 - 0.25, abs=0.02)
        assert second.ttfa_s is not None
        assert second.queue_wait_s is not None
        assert second.ttfa_s >= second.queue_wait_s

    run(scene())


def test_slow_generation_counts_as_underrun() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(ToneScript(frame_s=0.12), observer=notes) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            await socket.until("done")
        (record,) = notes.records
        assert record.underruns == 9  # ten frames, each but the first 40 ms late
        assert record.underrun_s == pytest.approx(9 * 0.04, abs=0.02)

    run(scene())


def test_waiting_for_text_is_no_underrun() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(ToneScript(frame_s=0.02), observer=notes) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            for word in ("Slow ", "hand, ", "clear ", "voice"):
                socket.put(type="text", utterance="a", text=word)
                await asyncio.sleep(1.5)
            socket.put(type="end", utterance="a")
            await socket.until("done")
        assert [(record.underruns, record.outcome) for record in notes.records] == [(0, DONE)]

    run(scene())


def test_every_end_is_reported_once() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(observer=notes) as bench:
            socket, other = bench.connect(), bench.connect()
            for name in ("early", "late"):
                say(socket, name, TEXT)
            say(other, "gone", TEXT * 5)
            await asyncio.sleep(0.1)
            socket.put(type="interrupt", utterance="early")
            await socket.until("done")
            socket.put(type="interrupt", utterance="late")
            await socket.until("interrupted", 2)
            other.disconnect()
            await asyncio.sleep(0.1)
            socket.put(type="end", utterance="early")
            await socket.until("error")
        assert {record.id: record.outcome for record in notes.records} == {
            "s0.1": INTERRUPTED,
            "s0.2": DONE,
            "s1.1": "client_gone",
        }
        assert len(notes.records) == 3
        assert notes.errors == ["unknown_utterance"]

    run(scene())


def test_phases_of_an_utterance_without_a_slot() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(observer=notes, slots=1, queue_wait_ms=100) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 3)
            say(socket, "b", TEXT)
            await socket.until("error")
        lost = next(record for record in notes.records if record.id == "s0.2")
        assert (lost.outcome, lost.queue_wait_s, lost.ttfa_s, lost.audio_s) == ("at_capacity", None, None, 0.0)
        assert notes.errors == ["at_capacity"]

    run(scene())


class CallRecorder(Observer):
    """CallRecorder every call, by its name and arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def session_opened(self, protocol: str, key: str) -> None:
        self.seen.append(("session_opened", protocol, key))

    def handshake_refused(self, reason: str, reached: str | None = None) -> None:
        self.seen.append(("handshake_refused", reason, reached))

    def error_sent(self, protocol: str, code: str, reached: str | None = None) -> None:
        self.seen.append(("error_sent", protocol, code, reached))

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self.seen.append(("utterance_ended", record))

    def engine_ready(self) -> None:
        self.seen.append(("engine_ready",))

    def resumption(self, event: str) -> None:
        self.seen.append(("resumption", event))


class Broken(Observer):
    def utterance_ended(self, record: UtteranceRecord) -> None:
        raise ZeroDivisionError(record.id)


CALLS = [
    ("session_opened", "native", "team-a"),
    ("handshake_refused", "at_capacity", "sockets"),
    ("error_sent", "native", "bad_message", None),
    ("utterance_ended", RECORD),
    ("engine_ready",),
    ("resumption", "detached"),
]


def test_every_observer_gets_every_event() -> None:
    first, second = CallRecorder(), CallRecorder()
    composite = CompositeObserver((first, second))
    for name, *arguments in CALLS:
        getattr(composite, str(name))(*arguments)
    assert first.seen == second.seen == CALLS
    own = {name for name in vars(Observer) if not name.startswith("_")}
    assert own == {name for name, *_ in CALLS}, "a call that is not passed on is lost"


def test_failing_observer_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    notes = CallRecorder()
    CompositeObserver((Broken(), notes)).utterance_ended(RECORD)
    assert notes.seen == [("utterance_ended", RECORD)]
    assert "an observer failed" in caplog.text


def test_one_line_for_each_utterance(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        UsageLog().utterance_ended(replace(RECORD, outcome="engine_lost", first_packet_s=None, key=""))
    (line,) = caplog.records
    told = {name: value for name, value in vars(line).items() if name in ("utterance", "key", "outcome", "ttfa_ms")}
    assert told == {"utterance": "r-1.1", "key": None, "outcome": "engine_lost", "ttfa_ms": None}
    assert (vars(line)["characters"], vars(line)["audio_ms"], vars(line)["queue_ms"]) == (20, 2000, 250)


def test_changes_of_an_utterance_are_counted() -> None:
    async def scene() -> None:
        notes = RecordingObserver()
        async with InProcessGateway(ToneScript(frame_s=0.01), observer=notes) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="u", voice="ada")
            socket.put(type="text", utterance="u", text="one two three four five six")
            await socket.until("started")
            for _ in range(2):
                socket.put(type="interrupt", utterance="u", hold_ms=1000)
            socket.put(type="continue", utterance="u")
            await socket.until("continued")
            socket.put(type="retract", utterance="u", characters=8)
            await socket.until("retracted")
            socket.put(type="end", utterance="u")
            await socket.until("done")
        (record,) = notes.records
        assert record.changes == {Change.HELD: 2, Change.CONTINUED: 1, Change.RETRACTED: 1}

    run(scene())
