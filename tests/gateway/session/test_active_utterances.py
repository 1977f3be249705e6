"""The utterances of a socket by name, and the one end of each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.gateway.lone_utterance import push_audio, send_due, speaking
from fakes.gateway.packet_encoder import FakeEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.gateway.errors import ClientGone, DuplicateUtterance, TooManyUtterances, UnknownUtterance
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session.active_utterances import RECENT_LIMIT, ActiveUtterances, Termination, to_record
from voxgate.gateway.session.effects import CloseSpeech, EffectQueue, SendAudio, SendMessage
from voxgate.gateway.session.lifecycle import State
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.pipeline.errors import EmptyText, GenerationFailed
from voxgate.pipeline.interface import SpeechRequest


def utterance(name: str) -> ServerUtterance:
    audio_format = OutputFormat("pcm")
    return ServerUtterance(
        name,
        1,
        SpeechRequest("ada"),
        audio_format,
        FakeEncoder(audio_format),
        max_characters=100,
        send_ahead_ms=400,
        outbox_ms=1000,
        words=False,
    )


def test_active_utterance_is_found_by_name_and_its_name_is_in_use() -> None:
    utterances, a = ActiveUtterances(2), utterance("a")
    utterances.add(a)
    assert utterances.find("a") is a
    assert utterances.active == (a,)
    utterances.check_free("b")
    with pytest.raises(DuplicateUtterance, match="'a'"):
        utterances.check_free("a")


def test_unknown_name_is_refused() -> None:
    utterances = ActiveUtterances(2)
    assert utterances.get("a") is None
    with pytest.raises(UnknownUtterance, match="'a'"):
        utterances.find("a")


def test_limit_counts_active_utterances_only() -> None:
    utterances, a, b = ActiveUtterances(2), utterance("a"), utterance("b")
    utterances.add(a)
    utterances.check_limit()
    utterances.add(b)
    with pytest.raises(TooManyUtterances, match="at most 2"):
        utterances.check_limit()
    utterances.finish(a)
    utterances.check_limit()


def test_done_utterance_is_found_until_its_name_is_used_again() -> None:
    utterances, done, again = ActiveUtterances(2), utterance("a"), utterance("a")
    utterances.add(done)
    utterances.finish(done)
    assert (utterances.get("a"), utterances.active) == (done, ())
    utterances.check_free("a")
    utterances.add(again)
    assert utterances.get("a") is again


def test_only_the_last_done_utterances_are_kept() -> None:
    utterances = ActiveUtterances(1)
    for number in range(RECENT_LIMIT + 2):
        done = utterance(f"u{number}")
        utterances.add(done)
        utterances.finish(done)
    kept = [number for number in range(RECENT_LIMIT + 2) if utterances.get(f"u{number}") is not None]
    assert kept == list(range(2, RECENT_LIMIT + 2))


class Ending:
    """A `Termination` with one active utterance, and the outcomes that it reported."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.utterance = utterance("a")
        self.utterances = ActiveUtterances(2)
        self.utterances.add(self.utterance)
        self.effects = EffectQueue(NativeProtocol(), lambda _code: None)
        self.termination = Termination("s", self.utterances, self.effects, self._record)

    def _record(self, _: ServerUtterance, outcome: str) -> None:
        self.outcomes.append(outcome)

    def rest(self) -> list[Any]:
        effects = []
        while (effect := self.effects.take()) is not None:
            effects.append(effect)
        return effects


def test_failed_utterance_is_reported_once_and_closes_its_speech_once() -> None:
    ending = Ending()
    ending.effects.add(SendAudio(ending.utterance, b"1"))
    for _ in range(2):
        ending.termination.fail(ending.utterance, EmptyText("no text"))
    assert ending.outcomes == ["empty_text"]
    assert ending.utterance.state is State.FAILED
    assert ending.utterances.get("a") is None
    close, error = ending.rest()
    assert close == CloseSpeech(ending.utterance), "queued audio is dropped"
    assert isinstance(error, SendMessage)
    assert json.loads(error.message)["code"] == "empty_text"


@pytest.mark.parametrize(("error", "partial"), [(GenerationFailed("failed"), False), (EmptyText("no text"), None)])
def test_failure_of_the_engine_says_whether_audio_was_sent(error: Any, partial: bool | None) -> None:
    ending = Ending()
    ending.termination.fail(ending.utterance, error)
    message = json.loads(ending.rest()[-1].message)
    assert message.get("partial_audio") is partial


def test_every_active_utterance_fails_when_the_client_is_gone() -> None:
    ending = Ending()
    ending.utterances.add(utterance("b"))
    ending.termination.fail_all(ClientGone("the client closed the socket"))
    assert ending.outcomes == ["client_gone", "client_gone"]
    assert ending.utterances.active == ()


def test_done_utterance_keeps_its_audio_and_can_end_again() -> None:
    ending = Ending()
    ending.utterance.state = State.DONE
    ending.effects.add(SendAudio(ending.utterance, b"last"))
    ending.termination.end(ending.utterance, "done")
    assert ending.utterances.get("a") is ending.utterance
    ending.utterance.state = State.INTERRUPTED
    ending.termination.end(ending.utterance, "interrupted")
    assert ending.outcomes == ["done"], "recorded once"
    assert ending.utterances.get("a") is None
    assert ending.rest() == [CloseSpeech(ending.utterance)]


@pytest.mark.parametrize(("waiting_for_text", "underruns"), [(False, 1), (True, 0)])
def test_underrun_counts_unless_the_talker_waited_for_text(waiting_for_text: bool, underruns: int) -> None:
    spoken, speech = speaking()
    push_audio(spoken, 1)
    send_due(spoken, 2.0)
    speech.waiting_for_text = waiting_for_text
    spoken.add_text(" you", 2.5)
    push_audio(spoken, 1, first_frame=1)
    send_due(spoken, 2.6)
    record = to_record(spoken, "native", "ada", "done")
    assert record.underruns == underruns
    assert record.underrun_s == pytest.approx(0.52 * underruns)


def test_record_has_the_figures_of_the_utterance() -> None:
    spoken, _ = speaking()
    push_audio(spoken, 2)
    send_due(spoken, 2.0)
    record = to_record(spoken, "native", "ada", "done")
    assert (record.protocol, record.key, record.outcome, record.voice) == ("native", "ada", "done", "ada")
    assert (record.characters, record.audio_s, record.ttfa_s, record.granted_s) == (5, 0.16, 1.0, 1.0)
