"""What a session has to say, in order and in its protocol's words; nothing after the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest
from voxgate.gateway.messages import CloseCode, PongMessage, ServerMessage
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session.effects import CloseSocket, CloseSpeech, EffectQueue, ReadSpeech, SendAudio, SendMessage
from voxgate.gateway.session.protocol import Disconnect, ProtocolOutput, SendPayload
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.pipeline.errors import BadMessage
from voxgate.pipeline.interface import Speech

ONE, OTHER = (cast(ServerUtterance, name) for name in ("one", "other"))
SPEECH = cast(Speech, "speech")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def queue(told: list[str]) -> EffectQueue:
    return EffectQueue(NativeProtocol(), told.append)


def rest(queue: EffectQueue) -> list[Any]:
    effects = []
    while (effect := queue.take()) is not None:
        effects.append(effect)
    return effects


def test_what_is_said_keeps_its_order_among_the_effects(queue: EffectQueue) -> None:
    queue.send(PongMessage(id="1"))
    queue.add(ReadSpeech(ONE, SPEECH))
    queue.add_output(SendPayload("by itself"))
    assert len(queue) == 3
    pong, listen, own = rest(queue)
    assert json.loads(pong.message) == {"type": "pong", "id": "1"}
    assert (listen, own) == (ReadSpeech(ONE, SPEECH), SendMessage("by itself"))
    assert queue.take() is None


def test_an_error_is_told_and_counted(queue: EffectQueue, told: list[str]) -> None:
    queue.send_error(BadMessage("no"), "u")
    (sent,) = rest(queue)
    assert json.loads(sent.message)["code"] == "bad_message"
    assert told == ["bad_message"]


def test_nothing_is_said_after_the_end(queue: EffectQueue, told: list[str]) -> None:
    queue.close(CloseCode.POLICY, "enough")
    queue.close(CloseCode.RESTARTING, "again")
    queue.send(PongMessage(id="1"))
    queue.add_output(SendPayload("more"))
    queue.send_error(BadMessage("no"), None)
    assert rest(queue) == [CloseSocket(CloseCode.POLICY, "enough")]
    assert queue.closed
    assert told == []


def test_a_dialect_may_hang_up_in_the_middle_of_what_it_says() -> None:
    class Curt(NativeProtocol):
        def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:  # noqa: ARG002  # whatever it is
            return [SendPayload("bye"), Disconnect(CloseCode.POLICY, "curt"), SendPayload("never")]

    queue = EffectQueue(Curt(), [].append)
    queue.send(PongMessage(id="1"))
    assert rest(queue) == [SendMessage("bye"), CloseSocket(CloseCode.POLICY, "curt")]


def test_what_speaks_of_an_utterance_can_be_taken_back_but_not_its_retirement(queue: EffectQueue) -> None:
    for effect in (SendAudio(ONE, b"1"), ReadSpeech(ONE, SPEECH), SendAudio(OTHER, b"2"), CloseSpeech(ONE)):
        queue.add(effect)
    queue.drop_audio(ONE)
    assert rest(queue) == [SendAudio(OTHER, b"2"), CloseSpeech(ONE)]


def test_a_lost_socket_leaves_only_what_is_to_be_retired(queue: EffectQueue) -> None:
    for effect in (SendAudio(ONE, b"1"), CloseSpeech(ONE), CloseSpeech(OTHER)):
        queue.add(effect)
    assert queue.clear() == (ONE, OTHER)
    assert queue.closed
    assert len(queue) == 0
