"""One utterance: text before and after its slot, due packets, credit, completion."""

from __future__ import annotations

import pytest
from fakes.gateway.lone_utterance import RecordedSpeech, enqueue, push_audio, send_due, speaking, utterance
from voxgate.gateway.session.lifecycle import IllegalEvent, State
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.interface import FinishReason


def test_text_of_a_queued_utterance_is_passed_on_when_it_is_admitted() -> None:
    queued, speech = utterance(), RecordedSpeech()
    queued.add_text("One ", 0.0)
    enqueue(queued, 0.0)
    queued.add_text("two. ", 0.0)
    queued.flush(0.0)
    queued.flush(0.0)
    queued.add_text("Three.", 0.0)
    queued.end(0.0)
    assert queued.state is State.QUEUED_ENDED
    started = queued.admit(speech)
    assert speech.calls == ["One two. ", "<flush>", "Three.", "<end>"]
    assert queued.state is State.ENDING
    assert (started.utterance, started.number, started.seed, started.packet_samples) == ("a", 1, 7, 1920)


def test_text_of_a_speaking_utterance_is_passed_on_at_once() -> None:
    spoken, speech = speaking()
    spoken.add_text("", 1.0)
    spoken.add_text(" there", 1.0)
    spoken.flush(1.0)
    spoken.end(1.0)
    assert speech.calls == ["Hello", " there", "<flush>", "<end>"]


def test_text_above_the_limit_is_refused_whole() -> None:
    spoken, speech = speaking()
    with pytest.raises(TextTooLong) as refused:
        spoken.add_text("x" * 16, 1.0)
    assert (refused.value.limit, refused.value.received) == (20, 21)
    spoken.add_text("x" * 15, 1.0)
    assert speech.calls == ["Hello", "x" * 15]


@pytest.mark.parametrize("text", ["", " \n", "<|im_end|>"])
def test_end_without_anything_to_say_is_refused(text: str) -> None:
    opened = utterance()
    assert not opened.add_text(text, 0.0)
    opened.flush(0.0)
    assert not opened.text_needs_slot
    with pytest.raises(EmptyText):
        opened.end(0.0)
    assert opened.state is State.OPEN


def test_first_speakable_text_needs_a_slot() -> None:
    opened = utterance()
    assert [opened.add_text(fragment, 0.0) for fragment in (" ", "<b", ">", "A")] == [False, False, False, True]
    enqueue(opened, 0.0)
    assert opened.state is State.QUEUED
    assert not opened.add_text("nd", 0.0), "once"


def test_punctuation_needs_a_slot_when_it_is_flushed_or_ended() -> None:
    opened = utterance()
    assert not opened.add_text("?!", 0.0)
    assert opened.text_needs_slot


def test_message_that_the_state_does_not_allow_changes_nothing() -> None:
    spoken, speech = speaking()
    spoken.end(1.0)
    for refused in (lambda: spoken.add_text("more", 1.0), lambda: spoken.flush(1.0), lambda: spoken.end(1.0)):
        with pytest.raises(IllegalEvent):
            refused()
    assert speech.calls == ["Hello", "<end>"]


def test_packets_are_sent_up_to_the_lead_then_at_playback_speed() -> None:
    spoken, _ = speaking()
    push_audio(spoken, 10)
    assert send_due(spoken, 2.0) == 5
    assert spoken.lead_s(2.0) == pytest.approx(0.4, abs=0.002)
    assert send_due(spoken, 2.079) == 1, "timers may fire early"


def test_played_frames_are_credited_once() -> None:
    spoken, speech = speaking()
    push_audio(spoken, 5)
    send_due(spoken, 2.0)
    for now_s in (2.0, 2.16, 2.17, 3.0):
        spoken.credit(now_s)
    assert speech.calls == ["Hello", 2, 5]


def test_closed_speech_is_not_credited() -> None:
    spoken, speech = speaking()
    push_audio(spoken, 5)
    send_due(spoken, 2.0)
    spoken.speech_closed = True
    spoken.credit(3.0)
    assert speech.calls == ["Hello"]


def test_utterance_is_complete_when_its_last_packet_has_left() -> None:
    spoken, speech = speaking()
    push_audio(spoken, 10)
    spoken.end(1.0)
    speech.finish_reason = FinishReason.LENGTH
    spoken.on_finished()
    send_due(spoken, 2.0)
    assert spoken.complete() is None
    assert send_due(spoken, 3.0) == 5
    done = spoken.complete()
    assert done is not None
    assert (done.reason, done.characters, done.frames, done.audio_ms, done.ttfa_ms) == ("length", 5, 10, 800, 1000)
    assert (spoken.ended, spoken.complete()) == (True, None)


def test_unpaced_packets_are_sent_at_once() -> None:
    spoken, _ = speaking(send_ahead_ms=None)
    push_audio(spoken, 10)
    assert send_due(spoken, 2.0) == 10
    assert not spoken.paced
