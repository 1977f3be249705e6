"""One listener's measurements, in virtual time, against a line whose timing is known."""

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


def listen(line: FakeConnection | None = None, **turn: Any) -> tuple[UtteranceResult, FakeConnection]:
    async def scene() -> tuple[UtteranceResult, FakeConnection]:
        served = line or FakeConnection(EVEN)

        async def open_connection() -> FakeConnection:
            await asyncio.sleep(0.05)
            return served

        options = {"stream": 4, "text": TEXT, "intended_s": 1.0, **turn}
        return await VirtualUser(PlannedUtterance(**options), open_connection).run(), served

    return run(scene())


def in_loop(messages: list[tuple[float, bytes]], **options: Any) -> FakeConnection:
    """A line may be made before its loop is: it only keeps events."""
    return FakeConnection(messages, **options)


def test_virtual_user_measures_times() -> None:
    sample, line = listen()
    assert (sample.outcome, sample.stream, sample.code) == (Outcome.DONE, 4, "")
    assert "".join(line.text) == TEXT
    assert line.ended
    assert line.closed
    assert sample.connect_ms == pytest.approx(50)
    assert sample.first_byte_ms == sample.first_audible_ms == pytest.approx(100)
    # The third word ends the first sentence, two fortieths of a second after the first.
    assert sample.after_sentence_ms == pytest.approx(100 - 80)
    assert sample.audio_s == pytest.approx(31 * 0.08)
    assert sample.playing_s == pytest.approx(30 * 0.08)
    assert sample.gaps_ms == [80.0] * 30
    assert (sample.queue_ms, sample.server_ms) == (3.0, 2.0)
    assert sample.underruns == {0: 0, 80: 0, 200: 0}
    assert sample.late_ms == 0.0


def test_leading_silence_is_not_audible() -> None:
    half = (np.r_[np.zeros(960), np.ones(960)] * 8000).astype("<i2").tobytes()
    sample, _ = listen(in_loop([(0.1, SILENT), (0.0, SILENT), (0.0, half), *EVEN[1:]]))
    assert sample.first_byte_ms == pytest.approx(100)
    assert sample.first_audible_ms == pytest.approx(100 + 2 * 80 + 40)


def test_late_message_is_an_underrun_for_smaller_buffers() -> None:
    sample, _ = listen(in_loop([(0.1, LOUD), (0.08, LOUD), (0.2, LOUD), (0.08, LOUD)]))
    assert sample.underruns == {0: 1, 80: 1, 200: 0}


def test_interrupting_user_measures_time_to_silence() -> None:
    sample, line = listen(behaviour=ClientBehaviour.BARGE_IN, cut_s=0.5)
    assert (sample.outcome, line.interrupted_ms) == (Outcome.INTERRUPTED, 500)
    assert sample.cancel_ms == pytest.approx(60), "the line ends where its next message would have come"
    assert not sample.listened


def test_aborting_user_drops_the_connection() -> None:
    sample, line = listen(behaviour=ClientBehaviour.ABRUPT, cut_s=0.5)
    assert line.aborted
    assert sample.outcome is Outcome.DROPPED


def test_slow_user_is_not_counted_for_gaps() -> None:
    sample, _ = listen(behaviour=ClientBehaviour.SLOW)
    assert (sample.outcome, sample.listened) == (Outcome.DONE, False)
    assert sample.gaps_ms[0] == pytest.approx(1580)


def test_refusals_and_failures_keep_their_code() -> None:
    sample, _ = listen(in_loop(EVEN[:2], refuse="at_capacity"))
    assert (sample.outcome, sample.code) == (Outcome.REFUSED, "at_capacity")
    sample, _ = listen(in_loop([]))
    assert (sample.outcome, sample.code) == (Outcome.FAILED, "no_audio")
    sample, _ = listen(in_loop([(500.0, LOUD)]), timeout_s=10.0)
    assert (sample.outcome, sample.code) == (Outcome.FAILED, "timeout")


def test_failed_connection_is_a_failure() -> None:
    async def scene(error: Exception) -> UtteranceResult:
        async def open_connection() -> FakeConnection:
            raise error

        return await VirtualUser(PlannedUtterance(0, TEXT, 0.0), open_connection).run()

    refused = run(scene(TargetRefused("key_limit")))
    assert (refused.outcome, refused.code) == (Outcome.REFUSED, "key_limit")
    lost = run(scene(ConnectionRefusedError()))
    assert (lost.outcome, lost.code) == (Outcome.FAILED, "ConnectionRefusedError")


def test_utterance_without_audio_is_a_failure() -> None:
    received = ReceivedAudio(24_000)
    received.add(SILENT, 1.0)
    assert received.audible_s == math.inf
    assert UtteranceResult.from_fields({**_plain(UtteranceResult(1)), "underruns": {"80": 2}}).underruns == {80: 2}


def _plain(sample: UtteranceResult) -> dict[str, Any]:
    import json

    return dict(json.loads(sample.to_json()))


def test_text_without_pace_is_one_message() -> None:
    _, line = listen(in_loop(EVEN[:2]), words_per_s=0.0)
    assert line.text == [TEXT]
