"""One utterance: text before and after its slot, due packets, underruns, credit, completion, and what it reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fakes.gateway.packet_encoder import FakeEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.session.admission import Ticket
from voxgate.gateway.session.lifecycle import IllegalEvent, State
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.interface import FinishReason, Milestones, Speech, SpeechChunk, SpeechRequest


class RecordedSpeech(Speech):
    """A speech that records its calls and generates nothing."""

    seed = 7
    finish_reason: FinishReason | None = None
    waiting_for_text = False
    pronunciations = ()
    pauses = 0

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.milestones = Milestones()

    def push_text(self, fragment: str) -> None:
        self.calls.append(fragment)

    def flush(self) -> None:
        self.calls.append("<flush>")

    def end(self) -> None:
        self.calls.append("<end>")

    def advance(self, frames: int) -> None:
        self.calls.append(frames)

    def spoken_until(self, played_ms: int) -> int:
        return played_ms // 100


def utterance(send_ahead_ms: int | None = 400) -> ServerUtterance:
    audio_format = OutputFormat("pcm")
    return ServerUtterance(
        "a",
        1,
        SpeechRequest("ada"),
        audio_format,
        FakeEncoder(audio_format),
        max_characters=20,
        send_ahead_ms=send_ahead_ms,
        outbox_ms=1000,
        words=False,
    )


def enqueue(queued: ServerUtterance, now_s: float) -> None:
    queued.enqueue(Ticket(Caller("k", KeyLimits()), math.inf, lambda *_: None, granted_s=now_s), now_s)


def speaking(send_ahead_ms: int | None = 400) -> tuple[ServerUtterance, RecordedSpeech]:
    """An utterance with an open speech, to which it has passed "Hello" at 1.0 s."""
    spoken, speech = utterance(send_ahead_ms), RecordedSpeech()
    spoken.add_text("Hello", 1.0)
    enqueue(spoken, 1.0)
    spoken.admit(speech)
    return spoken, speech


def push_audio(spoken: ServerUtterance, frames: int, first_frame: int = 0) -> None:
    spoken.on_audio(SpeechChunk(np.zeros(frames * FRAME_SAMPLES, np.float32), first_frame, frames))


def send_due(spoken: ServerUtterance, now_s: float) -> int:
    """Takes every packet that is due; returns how many."""
    count = 0
    while spoken.take_due_packet(now_s) is not None:
        count += 1
    return count


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


def test_deadline_grows_with_the_audio_sent() -> None:
    spoken, _ = speaking(send_ahead_ms=None)
    spoken.open("s.1", 1.0)
    assert spoken.deadline_s(60) == 61.0
    push_audio(spoken, 10)
    send_due(spoken, 2.0)
    assert spoken.deadline_s(60) == pytest.approx(61.0 + 3 * 0.8)


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
    assert spoken.next_wake_s(2.0) == pytest.approx(2.08)
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


@pytest.mark.parametrize(("waiting_for_text", "underruns"), [(False, 1), (True, 0)])
def test_underrun_counts_unless_the_talker_waited_for_text(waiting_for_text: bool, underruns: int) -> None:
    spoken, speech = speaking()
    push_audio(spoken, 1)
    send_due(spoken, 2.0)
    speech.waiting_for_text = waiting_for_text
    spoken.add_text(" you", 2.5)
    push_audio(spoken, 1, first_frame=1)
    send_due(spoken, 2.6)
    record = spoken.to_record("native", "ada", "done")
    assert record.underruns == underruns
    assert record.underrun_s == pytest.approx(0.52 * underruns)


def test_record_has_the_figures_of_the_utterance() -> None:
    spoken, _ = speaking()
    push_audio(spoken, 2)
    send_due(spoken, 2.0)
    record = spoken.to_record("native", "ada", "done")
    assert (record.protocol, record.key, record.outcome, record.voice) == ("native", "ada", "done", "ada")
    assert (record.characters, record.audio_s, record.ttfa_s, record.granted_s) == (5, 0.16, 1.0, 1.0)


def test_interrupt_splits_the_text_at_the_playback_position() -> None:
    spoken, _ = speaking()
    push_audio(spoken, 10)
    send_due(spoken, 2.0)
    spoken.interrupt(None, 2.25)
    answer = spoken.interrupted(with_text=True)
    assert (answer.played_ms, answer.text_spoken, answer.text_remaining) == (251, "He", "llo")
    assert spoken.outbox.next_samples is None


def test_text_deadline_counts_from_the_last_text_or_audio() -> None:
    spoken, _ = speaking()
    assert spoken.text_deadline_s(30) == 31.0
    push_audio(spoken, 1)
    send_due(spoken, 5.0)
    assert spoken.text_deadline_s(30) == 35.0
    spoken.end(6.0)
    assert spoken.text_deadline_s(30) == math.inf


def test_unpaced_packets_are_sent_at_once() -> None:
    spoken, _ = speaking(send_ahead_ms=None)
    push_audio(spoken, 10)
    assert send_due(spoken, 2.0) == 10
    assert not spoken.paced
