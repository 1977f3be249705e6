"""The session's first message and interrupts, without an event loop; random events are in acceptance/simulation."""

from __future__ import annotations

import json

from acceptance.simulation.session_walk import SessionWalk
from fakes.pipeline.tone_synthesizer import ToneSpeech
from voxgate.codecs.format import CODECS
from voxgate.gateway.session.effects import SendAudio, SendMessage


def test_first_message_lists_limits_and_formats() -> None:
    walk = SessionWalk(0)
    first = walk.session.next_effect(0.0)
    assert isinstance(first, SendMessage)
    opening = json.loads(first.message)
    assert (opening["type"], opening["protocol"], opening["voices"]) == (
        "session",
        1,
        "/v1/voices",
    )
    assert opening["limits"]["characters_per_utterance"] == 200
    assert {f["codec"] for f in opening["formats"]} == set(CODECS)
    assert walk.session.next_effect(0.0) is None
    assert walk.session.next_wake_s(0.0) == float("inf")


def test_interrupt_drops_queued_audio() -> None:
    walk = SessionWalk(0, slots=2)
    session = walk.session
    for name in "ab":
        for fields in ({"type": "start"}, {"type": "text", "text": "hello"}, {"type": "end"}):
            session.receive(json.dumps({**fields, "utterance": name}), 0.0)
    while walk.session.next_wake_s(0.0) <= 0.0:
        walk.take()
    for utterance in session.active:
        assert isinstance(utterance.speech, ToneSpeech)
        chunk = utterance.speech.step()
        assert chunk is not None
        session.on_audio(utterance, chunk)
    first = session.next_effect(0.0)
    assert isinstance(first, SendAudio)
    assert first.utterance.name == "a"
    session.receive('{"type":"interrupt","utterance":"b"}', 0.0)
    rest = [session.next_effect(0.0) for _ in range(10)]
    assert not [e for e in rest if isinstance(e, SendAudio) and e.utterance.name == "b"]
    assert [e for e in rest if isinstance(e, SendMessage) and '"interrupted"' in e.message]


def test_unpaced_packets_leave_together_and_those_that_an_interrupt_keeps_back_were_not_heard() -> None:
    walk = SessionWalk(0, slots=2)
    session = walk.session
    for fields in ({"type": "start", "pacing": "none"}, {"type": "text", "text": "hello, hello"}, {"type": "end"}):
        session.receive(json.dumps({**fields, "utterance": "a"}), 0.0)
    while session.next_wake_s(0.0) <= 0.0:
        walk.take()
    (utterance,) = session.active
    assert isinstance(utterance.speech, ToneSpeech)
    chunks = [utterance.speech.step() for _ in range(3)]
    for chunk in chunks:
        assert chunk is not None
        session.on_audio(utterance, chunk)
    assert isinstance(session.next_effect(0.0), SendAudio)
    assert session.backlog == 2
    session.receive('{"type":"interrupt","utterance":"a"}', 0.0)
    rest = list(iter(lambda: session.next_effect(0.0), None))
    assert not [effect for effect in rest if isinstance(effect, SendAudio)]
    (answer,) = (json.loads(e.message) for e in rest if isinstance(e, SendMessage) and "interrupted" in e.message)
    assert answer["played_ms"] == 80


def test_utterance_is_expected_from_its_start_and_again_from_its_text() -> None:
    walk = SessionWalk(0)
    walk.session.receive('{"type":"start","utterance":"a"}', 0.0)
    assert walk.synthesizer.expected == 1
    walk.session.receive('{"type":"text","utterance":"a","text":"hello"}', 0.0)
    assert walk.synthesizer.expected == 2
