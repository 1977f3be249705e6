"""The state of one utterance's retraction; whole retractions are in `test_retractions.py`."""

from __future__ import annotations

import pytest
from fakes.gateway.lone_utterance import RecordedSpeech
from fakes.gateway.packet_encoder import FakePacket
from voxgate.gateway.errors import RateLimited, UtteranceEnded
from voxgate.gateway.session.outbox import Outbox
from voxgate.gateway.session.retraction.retraction import WAIT_S, Retraction
from voxgate.gateway.session.retraction.told import ToldTimes
from voxgate.gateway.session.text.accepted_text import AcceptedText
from voxgate.pipeline.interface import SpeechCut

TEXT = "one two three"


class Case:
    """A retraction of TEXT, of which two packets were sent."""

    def __init__(self) -> None:
        self.text, self.outbox, self.speech = AcceptedText(), Outbox(1, 24_000, 1000), RecordedSpeech()
        self.text.add(TEXT)
        for frames in (1, 2):
            self.outbox.put([FakePacket(b"", 1920)], frames * 1920)
            self.outbox.take()
        self.retraction = Retraction("a", self.text, self.outbox, ToldTimes("a"), 24_000)

    def begin(self, characters: int, *, ended: bool = False, speech_over: bool = False) -> None:
        self.retraction.begin(characters, "m", 1.0, ended=ended, speech_over=speech_over)


def cut(characters: int, samples: int = 3840, *, divides: bool = True) -> SpeechCut:
    return SpeechCut(characters, samples, samples, (), divides)


def test_one_at_a_time() -> None:
    case = Case()
    case.begin(4)
    pending = case.retraction.pending
    assert pending is not None
    assert (pending.kept, pending.deadline_s) == (4, 1.0 + WAIT_S)
    with pytest.raises(RateLimited):
        case.begin(3)
    assert case.retraction.pending is pending


def test_text_whose_audio_was_sent_to_its_end_stays() -> None:
    case = Case()
    case.outbox.put([FakePacket(b"", 1920)])
    case.outbox.take()
    with pytest.raises(UtteranceEnded):
        case.begin(4, ended=True, speech_over=True)
    assert not case.retraction.under_way


def test_without_a_speech_the_text_is_gone_at_once() -> None:
    case = Case()
    case.begin(4)
    answer = case.retraction.take_back(None, None)
    assert (answer.characters, answer.text, answer.void_from, answer.samples) == (4, "two three", 4, None)
    assert not case.retraction.under_way
    assert str(case.text) == "one "


def test_text_before_the_cut_is_kept_and_the_cut_flushed() -> None:
    case = Case()
    case.begin(2)
    answer = case.retraction.take_back(case.speech, cut(8))
    assert (answer.characters, answer.text, answer.void_from, answer.flush_at) == (8, "three", 8, 8)
    assert (answer.samples, answer.audio_ms) == (3840, 160)
    assert case.retraction.under_way
    assert not case.retraction.can_cut


def test_word_at_whose_end_the_text_is_cut_is_void_since_more_may_follow_it() -> None:
    case = Case()
    case.begin(7)
    answer = case.retraction.take_back(case.speech, cut(7))
    assert (answer.characters, answer.void_from, answer.flush_at) == (7, 4, 7)


def test_cut_that_does_not_divide_voids_the_last_word_and_flushes_only_at_an_end() -> None:
    for ended, kept, flush_at in ((False, 13, None), (True, 13, 13), (True, 10, None)):
        case = Case()
        case.begin(kept, ended=ended)
        answer = case.retraction.take_back(case.speech, cut(kept, 0, divides=False))
        assert (answer.void_from, answer.flush_at, answer.samples) == (8, flush_at, None)


def test_former_speech_knows_the_text_until_all_that_was_sent_is_repeated() -> None:
    case, next_speech = Case(), RecordedSpeech()
    case.begin(8)
    case.retraction.take_back(case.speech, cut(8))
    assert case.retraction.speech_heard(case.speech) == (case.speech, 8)
    assert case.retraction.frames_to_credit(2) == 0
    assert case.retraction.on_closed().closed
    case.retraction.follow(case.speech)
    assert case.retraction.speech_heard(next_speech) == (case.speech, 8)
    case.retraction.on_audio()
    case.outbox.put([FakePacket(b"", 1920)], 1920)
    assert case.retraction.frames_to_credit(2) == 1
    assert not case.retraction.can_cut
    case.outbox.put([FakePacket(b"", 1920)], 3840)
    assert case.retraction.speech_heard(next_speech) == (next_speech, 8)
    assert case.retraction.frames_to_credit(2) == 2
    assert case.retraction.can_cut


def test_speech_that_ends_waits_for_the_answer() -> None:
    case = Case()
    assert not case.retraction.on_finished()
    case.begin(4)
    assert case.retraction.pending is not None
    case.retraction.pending.waits = True
    assert case.retraction.on_finished()
    assert (case.retraction.pending.speech_over, case.retraction.pending.waits) == (True, False)


@pytest.mark.parametrize("was_ended", [False, True])
def test_while_text_is_to_be_taken_back_a_speech_gets_what_preceded_the_request(was_ended: bool) -> None:
    case = Case()
    assert case.retraction.text_to_pass(ended=True) == (case.text.end, True)
    case.begin(4, ended=was_ended)
    asked = case.text.end
    case.text.add(" four")
    for ended in (False, True):
        assert case.retraction.text_to_pass(ended=ended) == (asked, was_ended)


def test_retraction_comes_too_late_where_only_the_end_gives_what_the_client_has_from_elsewhere() -> None:
    case = Case()
    case.outbox.skip(1, lambda _: None)
    case.begin(4)
    pending = case.retraction.pending
    assert not case.retraction.on_finished()
    assert case.retraction.drop() is pending
    assert not case.retraction.under_way
    case.outbox.skip(1, lambda _: None, last=True)
    with pytest.raises(UtteranceEnded):
        case.begin(4)
