"""An utterance without text to speak gives its slot up to those that wait, and gets one again when text comes."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.session.slots.starvation import STARVED_S

FIRST, SECOND = "Wait for it, ", "and here it is."
LONG = FIRST * 12


def begin(socket: FakeSocket, name: str = "a", text: str = FIRST) -> None:
    """Starts an utterance and sends a first text."""
    socket.put(type="start", utterance=name, format=PCM)
    socket.put(type="text", utterance=name, text=text)


def spoken(socket: FakeSocket) -> bytes:
    """Returns all audio of the first utterance."""
    return b"".join(payload for _, payload in socket.audio())


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_starved_utterance_gives_its_slot_to_one_that_waits() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            starving, other = gateway.connect("k1"), gateway.connect("k2")
            begin(starving)
            await asyncio.sleep(5)
            begun_s = now_s()
            say(other, "b", SECOND)
            await other.until("started")
            assert now_s() - begun_s < 0.5, "it had starved for long enough"
            await other.until("done")
            starving.put(type="text", utterance="a", text=SECOND)
            starving.put(type="end", utterance="a")
            done = await starving.until("done")
            assert spoken(starving) == s16le(tone_pcm(FIRST + SECOND))
            assert done["characters"] == len(FIRST + SECOND)
            assert [m["type"] for m in starving.messages] == ["session", "started", "done"]
            assert gateway.synthesizer.speeches[0].suspensions == 1

    run(scene())


def test_nothing_is_given_up_while_no_other_waits() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            socket = gateway.connect()
            begin(socket)
            await asyncio.sleep(20)
            assert gateway.admission.active == 1
            socket.put(type="end", utterance="a")
            await socket.until("done")
            assert gateway.synthesizer.speeches[0].suspensions == 0

    run(scene())


def test_utterance_that_speaks_or_gets_text_keeps_its_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=60_000) as gateway:
            speaking, other = gateway.connect("k1"), gateway.connect("k2")
            begin(speaking, text=LONG)
            say(other, "b", SECOND)
            for _ in range(8):
                await asyncio.sleep(0.8 * STARVED_S)
                speaking.put(type="text", utterance="a", text=FIRST)
            speaking.put(type="end", utterance="a")
            await speaking.until("done")
            await other.until("done")
            assert gateway.synthesizer.speeches[0].suspensions == 0

    run(scene())


@pytest.mark.parametrize("queue_wait_ms", [500, 1500, 3000, 60_000])
@pytest.mark.parametrize("later_s", [0.0, 4.3])
def test_trickle_of_text_does_not_hold_a_slot_until_others_are_refused(queue_wait_ms: int, later_s: float) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=queue_wait_ms) as gateway:
            trickler, other = gateway.connect("k1"), gateway.connect("k2")
            begin(trickler, text="ab")
            await asyncio.sleep(later_s)
            say(other, "b", SECOND)
            begun_s = now_s()
            while not other.of("started"):
                assert now_s() - begun_s < 15
                assert not other.of("error")
                await asyncio.sleep(0.8 * min(STARVED_S, queue_wait_ms / 2000))
                trickler.put(type="text", utterance="a", text="a")
            trickler.put(type="end", utterance="a")
            await trickler.until("done")
            assert trickler.of("warning") == []

    run(scene())


def test_letters_that_cannot_be_spoken_yet_hold_no_slot_from_others() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frames_per_character=0.1), slots=1) as gateway:
            silent, other = gateway.connect("k1"), gateway.connect("k2")
            begin(silent, text="Hel")
            say(other, "b", SECOND)
            await other.until("done")
            assert not silent.audio()
            silent.put(type="text", utterance="a", text="lo there, friend.")
            silent.put(type="end", utterance="a")
            await silent.until("done")

    run(scene())


def test_resumed_utterance_waits_before_its_callers_others() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.1), slots=1, queue_wait_ms=60_000) as gateway:
            socket = gateway.connect("k1")
            begin(socket)
            await asyncio.sleep(3)
            for name in "bc":
                say(socket, name, LONG)
            await socket.until("started", 2)
            socket.put(type="text", utterance="a", text=SECOND)
            socket.put(type="end", utterance="a")
            await socket.until("done", 3)
            assert [m["utterance"] for m in socket.of("done")] == ["b", "a", "c"]

    run(scene())


def test_suspended_utterance_that_ends_or_is_flushed_needs_its_slot_for_the_rest_only() -> None:
    """A tone has nothing left after its text, so the end needs no slot although none is free."""

    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            starving, other = gateway.connect("k1"), gateway.connect("k2")
            begin(starving, text="abcdef")
            await asyncio.sleep(3)
            say(other, "b", LONG)
            await other.until("started")
            starving.put(type="flush", utterance="a")
            starving.put(type="end", utterance="a")
            await starving.until("done")
            assert not other.of("done")
            await other.until("done")

    run(scene())


def test_text_during_the_suspension_is_spoken() -> None:
    """The engine takes two seconds to confirm; the client sends text and the end meanwhile."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=2), slots=1) as gateway:
            starving, other = gateway.connect("k1"), gateway.connect("k2")
            begin(starving)
            await asyncio.sleep(3)
            say(other, "b", SECOND)
            await asyncio.sleep(1)
            assert gateway.synthesizer.speeches[0].suspended
            assert not other.of("started")
            starving.put(type="text", utterance="a", text=SECOND)
            starving.put(type="end", utterance="a")
            await other.until("done")
            await starving.until("done")
            assert spoken(starving) == s16le(tone_pcm(FIRST + SECOND))

    run(scene())


def test_suspended_utterance_can_be_interrupted_and_its_socket_closed() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=0.5), slots=1) as gateway:
            for wait_s in (1.2, 1.6, 3.0):
                starving, other = gateway.connect("k1"), gateway.connect("k2")
                begin(starving, "x")
                await asyncio.sleep(2)
                say(other, "b", SECOND)
                await asyncio.sleep(wait_s - 1)
                starving.put(type="interrupt", utterance="x")
                answer = await starving.until("interrupted")
                assert answer["text_spoken"] + answer["text_remaining"] == FIRST
                begin(starving, "y")
                await other.until("done")
                starving.disconnect()
                other.disconnect()

    run(scene())


def test_resumption_without_a_slot_fails_after_the_queue_wait() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=3000) as gateway:
            starving, other = gateway.connect("k1"), gateway.connect("k2")
            begin(starving)
            await asyncio.sleep(3)
            say(other, "b", LONG)
            await other.until("started")
            starving.put(type="text", utterance="a", text=SECOND)
            error = await starving.until("error")
            assert (error["code"], error["utterance"]) == ("at_capacity", "a")
            await other.until("done")

    run(scene())


def test_suspended_utterance_is_finished_after_the_idle_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, text_idle_timeout_s=30) as gateway:
            starving, other = gateway.connect("k1"), gateway.connect("k2")
            begin(starving)
            await asyncio.sleep(3)
            say(other, "b", SECOND)
            await other.until("done")
            assert gateway.admission.active == 0
            await starving.until("done")
            assert starving.of("warning")[0]["code"] == "text_waited_out"

    run(scene())


def test_engine_lost_while_suspended_is_waited_for_when_text_comes() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=10_000) as gateway:
            starving, other = gateway.connect("k1"), gateway.connect("k2")
            begin(starving)
            await asyncio.sleep(3)
            say(other, "b", SECOND)
            await other.until("done")
            gateway.synthesizer.lose()
            starving.put(type="text", utterance="a", text=SECOND)
            starving.put(type="end", utterance="a")
            await asyncio.sleep(3)
            await gateway.restart_engine()
            await starving.until("done")
            assert spoken(starving) == s16le(tone_pcm(FIRST + SECOND))

    run(scene())
