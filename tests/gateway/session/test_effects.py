"""The effect queue: order, translation by the protocol, and silence after a close."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest
from voxgate.gateway.messages.connection import CloseCode, PongMessage
from voxgate.gateway.messages.server import ServerMessage
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session.effects import CloseSocket, CloseSpeech, EffectQueue, ReadSpeech, SendAudio, SendMessage
from voxgate.gateway.session.protocol import Disconnect, ProtocolOutput, SendPayload
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.pipeline.errors import BadMessage, VoxgateError
from voxgate.pipeline.interface import Speech

ONE, OTHER = (cast(ServerUtterance, name) for name in ("one", "other"))
SPEECH = cast(Speech, "speech")


@pytest.fixture
def sent_errors() -> list[VoxgateError]:
    return []


@pytest.fixture
def queue(sent_errors: list[VoxgateError]) -> EffectQueue:
    return EffectQueue(NativeProtocol(), sent_errors.append)


def rest(queue: EffectQueue) -> list[Any]:
    effects = []
    while (effect := queue.take()) is not None:
        effects.append(effect)
    return effects


def test_messages_and_effects_keep_their_order(queue: EffectQueue) -> None:
    queue.send(PongMessage(id="1"))
    queue.add(ReadSpeech(ONE, SPEECH))
    queue.add_output(SendPayload("of the protocol"))
    assert len(queue) == 3
    pong, read, own = rest(queue)
    assert json.loads(pong.message) == {"type": "pong", "id": "1"}
    assert (read, own) == (ReadSpeech(ONE, SPEECH), SendMessage("of the protocol"))
    assert queue.take() is None


def test_error_is_sent_and_reported_to_the_observer(queue: EffectQueue, sent_errors: list[VoxgateError]) -> None:
    queue.send_error(BadMessage("no"), "u")
    (sent,) = rest(queue)
    assert json.loads(sent.message)["code"] == "bad_message"
    assert [error.code for error in sent_errors] == ["bad_message"]


def test_no_message_is_added_after_a_close(queue: EffectQueue, sent_errors: list[VoxgateError]) -> None:
    queue.close(CloseCode.POLICY, "enough")
    queue.close(CloseCode.RESTARTING, "again")
    queue.send(PongMessage(id="1"))
    queue.add_output(SendPayload("more"))
    queue.send_error(BadMessage("no"), None)
    assert rest(queue) == [CloseSocket(CloseCode.POLICY, "enough")]
    assert queue.closed
    assert sent_errors == []


def test_protocol_may_disconnect_while_encoding_a_message() -> None:
    class Disconnecting(NativeProtocol):
        def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:  # noqa: ARG002 - the same for every message
            return [SendPayload("bye"), Disconnect(CloseCode.POLICY, "done"), SendPayload("never")]

    queue = EffectQueue(Disconnecting(), [].append)
    queue.send(PongMessage(id="1"))
    assert rest(queue) == [SendMessage("bye"), CloseSocket(CloseCode.POLICY, "done")]


def test_closing_of_a_speech_does_not_wait_for_writes(queue: EffectQueue) -> None:
    for effect in (SendAudio(OTHER, b"1"), CloseSpeech(ONE)):
        queue.add(effect)
    assert rest(queue) == [CloseSpeech(ONE), SendAudio(OTHER, b"1")]


def test_drop_audio_keeps_the_closing_of_the_speech(queue: EffectQueue) -> None:
    for effect in (SendAudio(ONE, b"1"), ReadSpeech(ONE, SPEECH), SendAudio(OTHER, b"2"), CloseSpeech(ONE)):
        queue.add(effect)
    queue.drop_audio(ONE)
    assert rest(queue) == [CloseSpeech(ONE), SendAudio(OTHER, b"2")]


def test_clear_returns_utterances_whose_speech_is_to_be_closed(queue: EffectQueue) -> None:
    for effect in (SendAudio(ONE, b"1"), CloseSpeech(ONE), CloseSpeech(OTHER)):
        queue.add(effect)
    assert set(queue.clear()) == {ONE, OTHER}
    assert queue.closed
    assert len(queue) == 0
