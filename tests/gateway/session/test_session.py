"""What a session says and keeps to itself, without a loop; random events are in scorecard/session_walk.py."""

from __future__ import annotations

import json

from acceptance.simulation.session_walk import SessionWalk
from fakes.pipeline.tone_synthesizer import ToneSpeech
from voxgate.codecs.format import CODECS
from voxgate.gateway.session.effects import SendAudio, SendMessage


def test_the_greeting_tells_the_limits() -> None:
    walker = SessionWalk(0)
    first = walker.session.next_effect(0.0)
    assert isinstance(first, SendMessage)
    greeting = json.loads(first.message)
    assert (greeting["type"], greeting["protocol"], greeting["voices"]) == ("session", 1, "/v1/voices")
    assert greeting["limits"]["characters_per_utterance"] == 200
    assert {f["codec"] for f in greeting["formats"]} == set(CODECS)
    assert walker.session.next_effect(0.0) is None
    assert walker.session.next_wake_s(0.0) == float("inf")


def test_an_interrupt_drops_audio_that_was_about_to_be_sent() -> None:
    walker = SessionWalk(0)
    session = walker.session
    for name in "ab":
        for fields in ({"type": "start"}, {"type": "text", "text": "hello"}, {"type": "end"}):
            session.receive(json.dumps({**fields, "utterance": name}), 0.0)
    while walker.session.next_wake_s(0.0) <= 0.0:
        walker.take()
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
