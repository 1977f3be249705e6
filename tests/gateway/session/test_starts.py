"""A `start` becomes an utterance, or is refused by a limit, by an engine that is not ready, or by an ending session."""

from __future__ import annotations

from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run


def test_too_many_utterances_on_one_socket() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, utterances_per_session=2) as gateway:
            socket = gateway.connect()
            for name in "abc":
                say(socket, name, "Some text to speak.")
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("too_many_utterances", "c")
            await socket.until("done", 2)

    run(scene())


def test_a_name_can_be_used_again() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            for turn in (1, 2):
                say(socket, "a", "Once more.")
                await socket.until("done", turn)
            assert [m["number"] for m in socket.of("started")] == [1, 2]

    run(scene())


def test_start_is_refused_while_the_engine_is_not_ready() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript()) as gateway:
            gateway.synthesizer.lose()
            socket = gateway.connect()
            socket.put(type="start", utterance="x", format=PCM)
            error = await socket.until("error")
            assert (error["code"], error["retryable"]) == ("engine_not_ready", True)
            assert error["retry_after_ms"] > 0
            await gateway.synthesizer.start()
            say(socket, "x", "Now.")
            await socket.until("done")

    run(scene())
