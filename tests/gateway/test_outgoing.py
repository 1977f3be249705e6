"""What a session has to say, in order and in its dialect's words; nothing after the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest
from voxgate.gateway.dialects.dialect import HangUp, Output, Say
from voxgate.gateway.dialects.native import Native
from voxgate.gateway.effects import CloseCode, CloseSocket, Listen, Retire, SendAudio, SendMessage
from voxgate.gateway.messages import Pong, ServerMessage
from voxgate.gateway.outgoing import Outgoing
from voxgate.gateway.utterance import Utterance
from voxgate.pipeline.errors import BadMessage

ONE, OTHER = (cast(Utterance, name) for name in ("one", "other"))


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def outgoing(told: list[str]) -> Outgoing:
    return Outgoing(Native(), told.append)


def rest(outgoing: Outgoing) -> list[Any]:
    effects = []
    while (effect := outgoing.take()) is not None:
        effects.append(effect)
    return effects


def test_what_is_said_keeps_its_order_among_the_effects(outgoing: Outgoing) -> None:
    outgoing.send(Pong(id="1"))
    outgoing.add(Listen(ONE))
    outgoing.put(Say("by itself"))
    assert len(outgoing) == 3
    pong, listen, own = rest(outgoing)
    assert json.loads(pong.message) == {"type": "pong", "id": "1"}
    assert (listen, own) == (Listen(ONE), SendMessage("by itself"))
    assert outgoing.take() is None


def test_an_error_is_told_and_counted(outgoing: Outgoing, told: list[str]) -> None:
    outgoing.tell(BadMessage("no"), "u")
    (sent,) = rest(outgoing)
    assert json.loads(sent.message)["code"] == "bad_message"
    assert told == ["bad_message"]


def test_nothing_is_said_after_the_end(outgoing: Outgoing, told: list[str]) -> None:
    outgoing.close(CloseCode.POLICY, "enough")
    outgoing.close(CloseCode.RESTARTING, "again")
    outgoing.send(Pong(id="1"))
    outgoing.put(Say("more"))
    outgoing.tell(BadMessage("no"), None)
    assert rest(outgoing) == [CloseSocket(CloseCode.POLICY, "enough")]
    assert outgoing.closed
    assert told == []


def test_a_dialect_may_hang_up_in_the_middle_of_what_it_says() -> None:
    class Curt(Native):
        def tell(self, message: ServerMessage) -> Iterable[Output]:  # noqa: ARG002  # whatever it is
            return [Say("bye"), HangUp(CloseCode.POLICY, "curt"), Say("never")]

    outgoing = Outgoing(Curt(), [].append)
    outgoing.send(Pong(id="1"))
    assert rest(outgoing) == [SendMessage("bye"), CloseSocket(CloseCode.POLICY, "curt")]


def test_what_speaks_of_an_utterance_can_be_taken_back_but_not_its_retirement(outgoing: Outgoing) -> None:
    for effect in (SendAudio(ONE, b"1"), Listen(ONE), SendAudio(OTHER, b"2"), Retire(ONE)):
        outgoing.add(effect)
    outgoing.silence(ONE)
    assert rest(outgoing) == [SendAudio(OTHER, b"2"), Retire(ONE)]


def test_a_lost_socket_leaves_only_what_is_to_be_retired(outgoing: Outgoing) -> None:
    for effect in (SendAudio(ONE, b"1"), Retire(ONE), Retire(OTHER)):
        outgoing.add(effect)
    assert outgoing.abandon() == (ONE, OTHER)
    assert outgoing.closed
    assert len(outgoing) == 0
