"""Measurements in virtual time, on a connection with known timing."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from fakes.virtual_time import run
from voxgate.loadtest.results import ClientBehaviour, Outcome, UtteranceResult
from voxgate.loadtest.targets.connection import TargetRefused
from voxgate.loadtest.virtual_user import PlannedUtterance, ReceivedAudio, VirtualUser

from .fake_connection import LOUD, SILENT, FakeConnection

TEXT = "One two three. Four five."
EVEN = [(0.1, LOUD), *[(0.08, LOUD)] * 30]


def speak(connection: FakeConnection | None = None, **utterance: Any) -> tuple[UtteranceResult, FakeConnection]:
    async def scene() -> tuple[UtteranceResult, FakeConnection]:
        served = connection or FakeConnection(EVEN)

        async def open_connection() -> FakeConnection:
            await asyncio.sleep(0.05)
            return served

        options = {"stream": 4, "text": TEXT, "intended_s": 1.0, **utterance}
        return await VirtualUser(PlannedUtterance(**options), open_connection).run(), served

    return run(scene())


def test_virtual_user_measures_times() -> None:
    result, connection = speak()
    assert (result.outcome, result.stream, result.code) == (Outcome.DONE, 4, "")
    assert "".join(connection.text) == TEXT
    assert connection.ended
    assert connection.closed
    assert result.connect_ms == pytest.approx(50)
    assert result.first_byte_ms == result.first_audible_ms == pytest.approx(100)
    # The third word, 80 ms after the first, ends the first sentence.
    assert result.after_sentence_ms == pytest.approx(100 - 80)
    assert result.audio_s == pytest.approx(31 * 0.08)
    assert result.receiving_s == pytest.approx(30 * 0.08)
    assert result.gaps_ms == [80.0] * 30
    assert (result.queue_ms, result.server_ms) == (3.0, 2.0)
    assert result.underruns == {0: 0, 80: 0, 200: 0}
    assert result.late_ms == 0.0


def test_leading_silence_is_not_audible() -> None:
    half = (np.r_[np.zeros(960), np.ones(960)] * 8000).astype("<i2").tobytes()
    result, _ = speak(FakeConnection([(0.1, SILENT), (0.0, SILENT), (0.0, half), *EVEN[1:]]))
    assert result.first_byte_ms == pytest.approx(100)
    assert result.first_audible_ms == pytest.approx(100 + 2 * 80 + 40)


def test_late_message_is_an_underrun_for_smaller_buffers() -> None:
    result, _ = speak(FakeConnection([(0.1, LOUD), (0.08, LOUD), (0.2, LOUD), (0.08, LOUD)]))
    assert result.underruns == {0: 1, 80: 1, 200: 0}


def test_interrupting_user_measures_time_to_silence() -> None:
    result, connection = speak(behaviour=ClientBehaviour.BARGE_IN, cut_s=0.5)
    assert (result.outcome, connection.interrupted_ms) == (Outcome.INTERRUPTED, 500)
    assert result.cancel_ms == pytest.approx(60), "the connection ends when its next message is due"
    assert not result.played


def test_aborting_user_drops_the_connection() -> None:
    result, connection = speak(behaviour=ClientBehaviour.ABRUPT, cut_s=0.5)
    assert connection.aborted
    assert result.outcome is Outcome.DROPPED


def test_slow_user_is_not_counted_for_gaps() -> None:
    result, _ = speak(behaviour=ClientBehaviour.SLOW)
    assert (result.outcome, result.played) == (Outcome.DONE, False)
    assert result.gaps_ms[0] == pytest.approx(1580)


def test_refusals_and_failures_keep_their_code() -> None:
    result, _ = speak(FakeConnection(EVEN[:2], refuse="at_capacity"))
    assert (result.outcome, result.code) == (Outcome.REFUSED, "at_capacity")
    result, _ = speak(FakeConnection([]))
    assert (result.outcome, result.code) == (Outcome.FAILED, "no_audio")
    result, _ = speak(FakeConnection([(500.0, LOUD)]), timeout_s=10.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, "timeout")


def test_failed_connection_is_a_failure() -> None:
    async def scene(error: Exception) -> UtteranceResult:
        async def open_connection() -> FakeConnection:
            raise error

        return await VirtualUser(PlannedUtterance(0, TEXT, 0.0), open_connection).run()

    refused = run(scene(TargetRefused("key_limit")))
    assert (refused.outcome, refused.code) == (Outcome.REFUSED, "key_limit")
    lost = run(scene(ConnectionRefusedError()))
    assert (lost.outcome, lost.code) == (Outcome.FAILED, "ConnectionRefusedError")


def test_silence_is_never_audible() -> None:
    received = ReceivedAudio(24_000)
    received.add(SILENT, 1.0)
    assert received.audible_s == math.inf


def test_text_without_pace_is_one_message() -> None:
    _, connection = speak(FakeConnection(EVEN[:2]), words_per_s=0.0)
    assert connection.text == [TEXT]
