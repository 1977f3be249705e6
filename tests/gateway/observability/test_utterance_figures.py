from __future__ import annotations

import pytest
from voxgate.gateway.observability.utterance_figures import UtteranceFigures
from voxgate.pipeline.interface import Milestones


def figures() -> UtteranceFigures:
    """Of an utterance whose first text came at 1.0 s and whose first packet left at 2.0 s."""
    begun = UtteranceFigures()
    begun.on_text(1.0)
    begun.on_packet(1920, 0.0, 2.0, lost=False)
    return begun


def test_stages_are_those_reached_first() -> None:
    begun = figures()
    begun.on_enqueue(1.1)
    begun.on_enqueue(5.0)
    begun.on_text(5.0)
    begun.on_packet(1920, 0.0, 5.0, lost=False)
    assert (begun.queued_s, begun.text_s, begun.first_packet_s, begun.ttfa_s) == (1.1, 1.0, 2.0, 1.0)


def test_without_audio_there_is_no_time_to_first_audio() -> None:
    begun = UtteranceFigures()
    begun.on_text(1.0)
    assert begun.ttfa_s is None


@pytest.mark.parametrize(("gap_s", "underruns"), [(None, 1), (2.5, 0), (2.0, 1)])
def test_underrun_counts_unless_the_talker_had_just_waited_for_text(gap_s: float | None, underruns: int) -> None:
    begun = figures()
    if gap_s is not None:
        begun.on_text_gap(gap_s)
    begun.on_packet(1920, 0.5, 3.0, lost=False)
    assert (begun.underruns, begun.underrun_s) == (underruns, 0.5 * underruns)


def test_timer_jitter_and_packets_without_audio_are_no_underrun() -> None:
    begun = figures()
    begun.on_packet(1920, 0.009, 3.0, lost=False)
    begun.on_packet(0, 0.5, 3.5, lost=False)
    assert begun.underruns == 0


def test_pause_after_a_loss_of_the_engine_is_silence_and_no_underrun() -> None:
    begun = figures()
    begun.on_loss()
    begun.on_packet(1920, 0.25, 3.0, lost=True)
    begun.on_continued()
    begun.on_packet(1920, 2.0, 6.0, lost=False)
    begun.on_packet(1920, 1.0, 8.0, lost=False)
    assert (begun.continued, begun.silence_s, begun.underruns, begun.underrun_s) == (1, 2.25, 1, 1.0)


def test_milestones_are_those_of_the_speech_that_made_the_first_audio() -> None:
    begun, first = figures(), Milestones(first_pcm_s=1.5)
    begun.on_speech_replaced(Milestones())
    assert begun.milestones is None
    begun.on_speech_replaced(first)
    begun.on_speech_replaced(Milestones(first_pcm_s=2.5))
    assert begun.milestones is first
