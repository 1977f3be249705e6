"""A session that is ended before the messages of its protocol had their turn, as those of a POST."""

from __future__ import annotations

from fakes.gateway.in_process import InProcessGateway
from fakes.virtual_time import run
from voxgate.gateway.messages.client import Start
from voxgate.gateway.protocols.one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from voxgate.gateway.session.ending import REVOKED


def test_a_post_that_is_ended_before_it_begins_is_answered_with_the_error() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            start = Start(type="start", utterance=ONE_SHOT_UTTERANCE)
            protocol = OneShotProtocol("openai", start, "Well.", ResponseBody("audio/pcm"))
            socket = gateway.connect(protocol=protocol)
            assert gateway.sessions[0].speaks, "its socket makes no room for others"
            gateway.sessions[0].abort(REVOKED)
            await socket.hung_up()
            assert protocol.error is not None
            assert protocol.error.code == "unauthorized"
            assert not gateway.synthesizer.speeches

    run(scene())


def test_an_idle_socket_gets_no_error() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            await socket.until("session")
            assert not gateway.sessions[0].speaks
            gateway.sessions[0].abort(REVOKED)
            assert await socket.hung_up() == 1008
            assert socket.of("error") == []

    run(scene())
