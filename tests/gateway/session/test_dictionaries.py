"""A `start` whose dictionaries have to be loaded: what follows it waits, in order."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import InProcessGateway, say
from fakes.virtual_time import run
from voxgate.gateway.messages.client import Start
from voxgate.gateway.session.lookup.pronunciations import Pronunciations
from voxgate.pipeline.errors import AtCapacity, UnknownDictionary, VoxgateError
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule

LOAD_S = 2.0
TEXT = "Words with a name."
LEXICON = Lexicon([LexiconRule("SQL", "sequel")])


class SlowDictionaries(Pronunciations):
    """Loads every dictionary in `LOAD_S`, or fails."""

    def __init__(self, error: VoxgateError | None = None) -> None:
        super().__init__()
        self._error = error

    def dictionaries(self, start: Start, key: str | None) -> tuple[Lexicon, ...] | None:
        return None if start.dictionaries else super().dictionaries(start, key)

    async def load_dictionaries(self, start: Start, key: str | None, caller: str) -> tuple[Lexicon, ...]:
        del start, key, caller
        await asyncio.sleep(LOAD_S)
        if self._error is not None:
            raise self._error
        return (LEXICON,)


def gateway(error: VoxgateError | None = None) -> InProcessGateway:
    served = InProcessGateway()
    object.__setattr__(served.factory, "pronunciations", SlowDictionaries(error))
    return served


def test_messages_behind_the_start_wait_in_order() -> None:
    async def scene() -> None:
        async with gateway() as served:
            socket, other = served.connect(), served.connect()
            say(socket, "a", TEXT, dictionaries=["pd_a"])
            say(socket, "b", TEXT)
            socket.put(type="ping", id="last")
            say(other, "c", TEXT)
            await asyncio.sleep(LOAD_S / 2)
            assert [m["type"] for m in socket.messages] == ["session"]
            assert other.of("started"), "other sockets do not wait"
            await socket.until("done", 2)
            assert [m.get("utterance", m["type"]) for m in socket.messages[1:4]] == ["a", "b", "pong"]
            assert served.synthesizer.speeches[1].request.lexica == (LEXICON,)

    run(scene())


@pytest.mark.parametrize("error", [UnknownDictionary("none"), AtCapacity("late", retry_after_ms=5)])
def test_a_failure_refuses_the_start_alone(error: VoxgateError) -> None:
    async def scene() -> None:
        async with gateway(error) as served:
            socket = served.connect()
            say(socket, "a", TEXT, dictionaries=["pd_a"])
            say(socket, "b", TEXT)
            assert (await socket.until("done"))["utterance"] == "b"
            codes = [(m["code"], m["utterance"]) for m in socket.of("error")]
            assert codes == [(error.code, "a"), *2 * [("unknown_utterance", "a")]]

    run(scene())


def test_a_drain_waits_for_the_dictionaries_and_refuses_the_start() -> None:
    async def scene() -> None:
        async with gateway() as served:
            socket = served.connect()
            say(socket, "a", TEXT, dictionaries=["pd_a"])
            await asyncio.sleep(LOAD_S / 2)
            served.sessions[0].drain(1000, asyncio.get_running_loop().time())
            assert await socket.hung_up() == 1012
            assert socket.of("error")[0]["code"] == "draining"

    run(scene())


@pytest.mark.parametrize("moment_s", [0.0, LOAD_S / 2])
def test_a_client_that_goes_meanwhile_leaves_nothing(moment_s: float) -> None:
    async def scene() -> None:
        async with gateway() as served:
            socket = served.connect()
            say(socket, "a", TEXT, dictionaries=["pd_a"])
            await asyncio.sleep(moment_s)
            served.sessions[0].abort()
            await socket.hung_up()
            await served.runs[0]

    run(scene())
