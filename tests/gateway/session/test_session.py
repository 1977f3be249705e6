"""The session's first message and interrupts, without an event loop; random events are in acceptance/simulation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from acceptance.simulation.session_walk import SessionWalk
from fakes.pipeline.tone_synthesizer import ToneSpeech
from voxgate.codecs.format import CODECS
from voxgate.gateway.session.effects import SendAudio, SendMessage
from voxgate.gateway.session.timers import BURST_PACKETS, UtteranceTimers


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


def test_packets_without_pacing_leave_without_a_look_at_the_timers_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walk, looks = SessionWalk(0, slots=2), 0
    session, update = walk.session, UtteranceTimers.update

    def counted(timers: UtteranceTimers, *arguments: Any) -> None:
        nonlocal looks
        looks += 1
        update(timers, *arguments)

    for fields in ({"type": "start", "pacing": "none"}, {"type": "text", "text": "hello " * 9}, {"type": "end"}):
        session.receive(json.dumps({**fields, "utterance": "a"}), 0.0)
    while session.next_wake_s(0.0) <= 0.0:
        walk.take()
    (utterance,) = session.active
    assert isinstance(utterance.speech, ToneSpeech)
    for _ in range(BURST_PACKETS + 4):
        chunk = utterance.speech.step()
        assert chunk is not None
        session.on_audio(utterance, chunk)
    monkeypatch.setattr(UtteranceTimers, "update", counted)
    for sent in range(1, BURST_PACKETS + 4):
        assert session.next_wake_s(0.0) == 0.0
        assert isinstance(session.next_effect(0.0), SendAudio)
        assert session.backlog == 0, "what an interrupt would have to take back"
        assert looks == (1 if sent <= BURST_PACKETS else 2)
    assert isinstance(session.next_effect(0.0), SendAudio)
    assert looks == 3, "the last packet may complete the utterance"
    session.receive('{"type":"interrupt","utterance":"a"}', 0.0)
    rest = list(iter(lambda: session.next_effect(0.0), None))
    assert not [effect for effect in rest if isinstance(effect, SendAudio)]


def test_utterance_is_expected_from_its_start_and_again_from_its_text() -> None:
    walk = SessionWalk(0)
    walk.session.receive('{"type":"start","utterance":"a"}', 0.0)
    assert walk.synthesizer.expected == 1
    walk.session.receive('{"type":"text","utterance":"a","text":"hello"}', 0.0)
    assert walk.synthesizer.expected == 2
