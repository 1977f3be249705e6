"""How much an interrupted client had heard, without an event loop; `acceptance/simulation` has random holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from acceptance.simulation.session_walk import SessionWalk
from fakes.gateway.lone_utterance import push_audio, send_due, speaking
from fakes.pipeline.tone_synthesizer import ToneSpeech
from voxgate.gateway.session.effects import Effect, SendAudio, SendMessage
from voxgate.gateway.session.session import ServerSession


def test_interrupt_splits_the_text_at_the_playback_position() -> None:
    spoken, _ = speaking()
    push_audio(spoken, 10)
    send_due(spoken, 2.0)
    spoken.interrupt(None, 2.25)
    answer = spoken.interrupted(with_text=True)
    assert (answer.played_ms, answer.text_spoken, answer.text_remaining) == (251, "He", "llo")
    assert spoken.outbox.next_samples is None


def speaks(pacing: str, *names: str) -> ServerSession:
    """A session in which four frames of each utterance wait to be sent."""
    walk = SessionWalk(0, slots=len(names))
    for name in names:
        for fields in ({"type": "start", "pacing": pacing}, {"type": "text", "text": "hello, hello"}, {"type": "end"}):
            ask(walk.session, **fields, utterance=name)
    while walk.session.next_wake_s(0.0) <= 0.0:
        walk.take()
    for utterance in walk.session.active:
        assert isinstance(utterance.speech, ToneSpeech)
        for _ in range(4):
            chunk = utterance.speech.step()
            assert chunk is not None
            walk.session.on_audio(utterance, chunk)
    return walk.session


def ask(session: ServerSession, **fields: Any) -> None:
    session.receive(json.dumps(fields), 0.0)


def heard_ms(session: ServerSession) -> list[int]:
    """Of the answers to interrupts among what the session has to do."""
    return answers_ms(left(session))


def left(session: ServerSession) -> list[Effect]:
    return list(iter(lambda: session.next_effect(0.0), None))


def answers_ms(effects: list[Effect]) -> list[int]:
    messages = [json.loads(effect.message) for effect in effects if isinstance(effect, SendMessage)]
    return [message["played_ms"] for message in messages if message["type"] == "interrupted"]


@pytest.mark.parametrize("pacing", ["playback", "none"])
@pytest.mark.parametrize("again", [{}, {"hold_ms": 5000}])
def test_what_was_heard_before_a_hold_stays_heard_until_it_is_sent_again(pacing: str, again: dict[str, int]) -> None:
    session = speaks(pacing, "a")
    while session.next_effect(0.0) is not None:
        pass
    ask(session, type="interrupt", utterance="a", played_ms=100, hold_ms=5000)
    ask(session, type="continue", utterance="a")
    ask(session, type="interrupt", utterance="a", **again)
    assert heard_ms(session) == [100, 100]


def test_packet_that_waits_for_the_socket_was_not_heard() -> None:
    session = speaks("none", "a", "b")
    first = session.next_effect(0.0)
    assert isinstance(first, SendAudio)
    assert first.utterance.name == "a"
    assert session.backlog == 1, "the first packet of the other one"
    ask(session, type="interrupt", utterance="b")
    ask(session, type="interrupt", utterance="a")
    assert heard_ms(session) == [0, 80]


def test_last_packet_of_a_done_utterance_leaves_behind_its_hold() -> None:
    session = speaks("none", "a", "b")
    done = session.active[1]
    session.on_finished(done)
    while not done.ended:
        assert session.next_effect(0.0) is not None
    for kind in ({"type": "interrupt", "hold_ms": 5000}, {"type": "interrupt", "hold_ms": 5000}, {"type": "continue"}):
        ask(session, **kind, utterance="b")
    effects = left(session)
    assert answers_ms(effects) == [240, 240]
    assert [effect.pts for effect in effects if isinstance(effect, SendAudio) and effect.utterance is done] == [5760]
