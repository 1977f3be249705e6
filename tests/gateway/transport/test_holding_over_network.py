"""Holds over a real connection, with the Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import DEFAULT_SEED, tone_pcm
from fakes.waiting import until
from voxgate.client import Audio, Continued, Done, Interrupted, SpeechError, Utterance, connect
from voxgate.gateway.server import Gateway

TEXT = "The weather is fine today and will stay so."
BYTES_PER_MS = 48


class Player:
    """Reads an utterance; `heard` is what it has played or is going to play."""

    def __init__(self, utterance: Utterance) -> None:
        self.heard = bytearray()
        self.events: list[str] = []
        self._utterance = utterance

    async def play(self) -> None:
        async for event in self._utterance.events():
            if isinstance(event, Audio):
                self.heard += event.payload
            elif isinstance(event, Interrupted | Continued | Done):
                self.events.append(type(event).__name__)

    async def hold(self, behind_ms: int, hold_ms: int = 5000) -> Interrupted:
        """Interrupts that much before the end of what was received, and throws the rest away."""
        played_ms = len(self.heard) // BYTES_PER_MS - behind_ms
        answer = await self._utterance.interrupt(played_ms, hold_ms=hold_ms)
        await until(lambda: self.events.count("Interrupted") > self.events.count("Continued"))
        del self.heard[answer.played_ms * BYTES_PER_MS :]
        return answer


def address(served: Gateway) -> str:
    return f"ws://127.0.0.1:{served.port}"


async def test_held_utterance_is_heard_without_a_missing_or_repeated_sample() -> None:
    async with (
        gateway() as served,
        connect(address(served)) as session,
        session.utterance(seed=DEFAULT_SEED) as utterance,
    ):
        player = Player(utterance)
        playing = asyncio.create_task(player.play())
        await utterance.feed([TEXT])
        await until(lambda: len(player.heard) > 800 * BYTES_PER_MS)
        answer = await player.hold(behind_ms=170)
        assert answer.text_spoken + answer.text_remaining == TEXT
        assert utterance.held == answer
        session.transport.abort()  # the held session is resumed
        continued = await utterance.continue_speech()
        assert continued.played_ms == answer.played_ms
        await playing
        assert utterance.done is not None
        player.events.append("between")
        answer = await utterance.interrupt(len(player.heard) // BYTES_PER_MS - 90, hold_ms=5000)
        del player.heard[answer.played_ms * BYTES_PER_MS :]
        playing = asyncio.create_task(player.play())
        await utterance.continue_speech()
        await playing
        assert bytes(player.heard) == s16le(tone_pcm(TEXT))
        again = ["Interrupted", "Continued", "Done"]
        assert player.events == [*again, "between", *again]


@asynccontextmanager
async def held(served: Gateway, hold_ms: int) -> AsyncIterator[Utterance]:
    """An utterance whose hold was answered."""
    async with connect(address(served)) as session, session.utterance(seed=DEFAULT_SEED) as utterance:
        await utterance.feed([TEXT])
        await anext(aiter(utterance.audio()))
        await utterance.interrupt(80, hold_ms=hold_ms)
        yield utterance


async def test_utterance_ends_when_it_is_not_continued() -> None:
    async with gateway() as served, held(served, hold_ms=50) as utterance:
        events = [event async for event in utterance.events()]
        assert isinstance(events[-1], Interrupted)
        assert utterance.interrupted is not None
        with pytest.raises(SpeechError, match="utterance_ended"):
            await utterance.continue_speech()
        with pytest.raises(SpeechError, match="utterance_ended"):
            await utterance.send("more")


async def test_interrupt_without_a_hold_ends_a_held_utterance() -> None:
    async with gateway() as served, held(served, hold_ms=5000) as utterance:
        assert (await utterance.interrupt()).hold_ms is None
        with pytest.raises(SpeechError, match="utterance_ended"):
            await utterance.continue_speech()
        await until(lambda: served._admission.active == 0)


async def test_refused_hold_changes_nothing() -> None:
    async with gateway() as served, connect(address(served)) as session, session.utterance(seed=7) as utterance:
        player = Player(utterance)
        playing = asyncio.create_task(player.play())
        await utterance.feed([TEXT])
        await until(lambda: len(player.heard) > 300 * BYTES_PER_MS)
        with pytest.raises(SpeechError, match="bad_message"):
            await utterance.interrupt(100, hold_ms=session.info.limits["hold_max_ms"] + 1)
        with pytest.raises(SpeechError, match="not_held"):
            await utterance.continue_speech()
        await playing
        assert bytes(player.heard) == s16le(tone_pcm(TEXT))
        assert player.events == ["Done"]


async def test_concurrent_calls_share_one_answer() -> None:
    async with gateway() as served, held(served, hold_ms=5000) as utterance:
        first, second = await asyncio.gather(utterance.continue_speech(), utterance.continue_speech())
        assert first is second
        kept, ended = await asyncio.gather(utterance.interrupt(hold_ms=5000), utterance.interrupt())
        assert (kept.hold_ms, ended.hold_ms) == (5000, None)
