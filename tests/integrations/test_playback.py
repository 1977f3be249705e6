from __future__ import annotations

import pytest
from voxgate.integrations.playback import TurnPlayback


def test_played_audio_follows_the_clock_up_to_what_was_received() -> None:
    playback = TurnPlayback()
    playback.add("a", 1.0, 5.0)
    assert playback.played_s("a", 5.0) == 0, "the bot has not begun to speak"
    playback.start(10.0)
    playback.start(10.3)  # a transport may say it twice
    assert playback.played_s("a", 10.4) == pytest.approx(0.4)
    assert playback.played_s("a", 12.0) == 1.0
    playback.add("a", 0.5, 10.9)
    assert playback.played_s("a", 11.2) == pytest.approx(1.2)
    assert playback.played_s("unknown", 11.2) == 0


def test_turns_are_played_one_after_another() -> None:
    playback = TurnPlayback()
    playback.start(0.0)
    playback.add("a", 1.0, 0.0)
    playback.add("b", 2.0, 0.0)
    assert playback.played_s("b", 0.8) == 0
    assert playback.played_s("b", 1.5) == pytest.approx(0.5)
    playback.complete("a")
    assert playback.played_s("b", 1.5) == pytest.approx(0.5), "what was played before still counts"


def test_silence_and_interruptions_end_what_was_played() -> None:
    playback = TurnPlayback()
    playback.start(0.0)
    playback.add("a", 1.0, 0.0)
    playback.add("b", 1.0, 0.0)
    playback.complete("a")
    playback.forget("b")
    playback.stop()
    playback.add("c", 1.0, 2.0)
    assert playback.played_s("c", 2.0) == 0
    playback.start(2.0)
    assert playback.played_s("c", 2.25) == pytest.approx(0.25)
    assert playback.played_s("b", 2.25) == 0


def test_a_turn_that_pauses_goes_on_behind_what_was_played() -> None:
    playback = TurnPlayback()
    playback.add("a", 3.0, 0.0)
    playback.start(0.0)
    playback.stop()  # as where the language model calls a tool
    assert playback.played_s("a", 9.0) == 3.0
    playback.add("a", 2.0, 10.0)
    playback.add("b", 1.0, 10.0)
    assert (playback.late_s["a"], playback.late_s["b"]) == (7.0, 0.0)
    playback.start(10.0)
    assert playback.played_s("a", 11.0) == pytest.approx(4.0)
    assert playback.played_s("a", 19.0) == 5.0
    assert playback.played_s("b", 12.5) == pytest.approx(0.5)


def test_late_audio_is_not_played_before_it_comes() -> None:
    playback = TurnPlayback()
    playback.add("a", 1.0, 0.0)
    playback.start(0.0)
    playback.add("a", 1.0, 3.0)
    assert playback.played_s("a", 3.5) == 1.5
    assert playback.late_s["a"] == 2.0
