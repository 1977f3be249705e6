"""What watchers are told: one record for each utterance, and every error once."""

from __future__ import annotations

import asyncio

import pytest
from fakes.bench import PCM, Bench, say
from fakes.tone import Script
from fakes.virtual_time import run
from voxgate.gateway.observer import DONE, INTERRUPTED, Observer, UtteranceRecord

TEXT = "Twenty characters it"


class Notes(Observer):
    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []
        self.errors: list[str] = []

    def error_sent(self, dialect: str, code: str) -> None:
        assert dialect == "native"
        self.errors.append(code)

    def utterance_over(self, record: UtteranceRecord) -> None:
        self.records.append(record)


def test_an_utterance_that_was_spoken() -> None:
    async def scene() -> None:
        notes = Notes()
        async with Bench(observer=notes) as bench:
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
        assert (record.queue_wait_s, record.underruns, record.dry_s) == (0.0, 0, 0.0)
        assert record.milestones.first_frame_s is not None

    run(scene())


def test_time_in_the_queue() -> None:
    async def scene() -> None:
        notes = Notes()
        async with Bench(Script(frame_s=0.05), observer=notes, slots=1) as bench:
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


def test_speech_made_slower_than_it_is_played_is_an_underrun() -> None:
    async def scene() -> None:
        notes = Notes()
        async with Bench(Script(frame_s=0.12), observer=notes) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT)
            await socket.until("done")
        (record,) = notes.records
        assert record.underruns == 9  # ten frames, each but the first 40 ms late
        assert record.dry_s == pytest.approx(9 * 0.04, abs=0.02)

    run(scene())


def test_waiting_for_text_is_no_underrun() -> None:
    async def scene() -> None:
        notes = Notes()
        async with Bench(Script(frame_s=0.02), observer=notes) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            for word in ("Slow ", "hand, ", "clear ", "voice"):
                socket.put(type="text", utterance="a", text=word)
                await asyncio.sleep(1.5)
            socket.put(type="end", utterance="a")
            await socket.until("done")
        assert [(record.underruns, record.outcome) for record in notes.records] == [(0, DONE)]

    run(scene())


def test_every_end_is_told_once() -> None:
    async def scene() -> None:
        notes = Notes()
        async with Bench(observer=notes) as bench:
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


def test_one_that_never_got_a_slot() -> None:
    async def scene() -> None:
        notes = Notes()
        async with Bench(observer=notes, slots=1, queue_wait_ms=100) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 3)
            say(socket, "b", TEXT)
            await socket.until("error")
        lost = next(record for record in notes.records if record.id == "s0.2")
        assert (lost.outcome, lost.queue_wait_s, lost.ttfa_s, lost.audio_s) == ("at_capacity", None, None, 0.0)
        assert notes.errors == ["at_capacity"]

    run(scene())
