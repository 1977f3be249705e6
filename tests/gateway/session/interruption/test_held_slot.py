"""The slot of a held utterance: given to one that waits, asked for again, and lost with the engine."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.session.slots.starvation import STARVED_S

from .hold_client import OTHER, TEXT, audio_behind, hold, now_s, spoken


@pytest.mark.parametrize("chunk_frames", [1, 3])
def test_held_utterance_gives_its_slot_to_one_that_waits_and_asks_for_it_again(chunk_frames: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(chunk_frames=chunk_frames, lookahead_frames=25), slots=1) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT)
            await asyncio.sleep(1)
            hold(holding)
            await asyncio.sleep(3)
            assert gateway.admission.active == 1, "no other waits"
            say(other, "b", OTHER)
            begun_s = now_s()
            await other.until("started")
            assert now_s() - begun_s < STARVED_S
            await other.until("done")
            assert gateway.admission.active == 0
            holding.put(type="continue", utterance="a")
            await holding.until("done")
            assert gateway.synthesizer.speeches[0].suspensions == 1
            assert spoken(holding) == s16le(tone_pcm(TEXT))
            assert [m["type"] for m in holding.messages] == ["session", "started", "interrupted", "continued", "done"]

    run(scene())


def test_kept_audio_is_sent_while_the_utterance_waits_for_its_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=60_000) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT * 3)
            await asyncio.sleep(1)
            hold(holding)
            say(other, "b", TEXT)
            await other.until("started")
            holding.put(type="continue", utterance="a")
            await holding.until("continued")
            await asyncio.sleep(1.4)
            assert not other.of("done")
            assert len(audio_behind(holding, "continued")) >= 1.3 / 0.08
            await holding.until("done")
            assert spoken(holding) == s16le(tone_pcm(TEXT * 3))

    run(scene())


def test_continue_without_a_free_slot_fails_after_the_queue_wait() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=3000) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT * 3)
            await asyncio.sleep(1)
            hold(holding)
            say(other, "b", TEXT * 3)
            await other.until("started")
            holding.put(type="continue", utterance="a")
            error = await holding.until("error")
            assert (error["code"], error["utterance"]) == ("at_capacity", "a")
            await other.until("done")

    run(scene())


def test_utterance_that_gave_its_slot_up_is_let_go_or_held_again() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=0.5), slots=1) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            for name, held_s in (("a", 1.2), ("b", 1.7), ("c", 4.0)):
                say(holding, name, TEXT)
                await asyncio.sleep(1)
                hold(holding, name, hold_ms=5000)
                say(other, name, OTHER)
                await asyncio.sleep(held_s)
                holding.put(type="continue", utterance=name)
                hold(holding, name, hold_ms=300)
                await other.until("done", "abc".index(name) + 1)
                await asyncio.sleep(1)
                assert gateway.admission.active == 0

    run(scene())


@pytest.mark.parametrize("returns_s", [0.5, 4.0])
@pytest.mark.parametrize("contested", [False, True])
def test_loss_of_the_engine_while_it_is_held(returns_s: float, contested: bool) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=30_000) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT)
            await asyncio.sleep(1)
            hold(holding)
            if contested:
                say(other, "b", OTHER)
                await other.until("done")
            await asyncio.sleep(1)
            gateway.synthesizer.lose()
            await asyncio.sleep(2)
            asyncio.get_running_loop().call_later(
                returns_s, lambda: tasks.append(asyncio.create_task(gateway.restart_engine()))
            )
            tasks: list[asyncio.Task[None]] = []
            holding.put(type="continue", utterance="a")
            await holding.until("done")
            assert spoken(holding) == s16le(tone_pcm(TEXT))
            await asyncio.gather(*tasks)

    run(scene())
