"""Clients that take text back while gateways are killed and drained, connections cut and engines lost.

Sessions, checkpoints and the Python client are the real ones; network and balancer are not. What is heard has to be the
speech behind the codes with which the last gateway went on, with the text that the answers left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fakes.gateway.lossy_fleet import LossyFleet
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.client import Audio, AudioFormat, Done, Resumed, Retracted, Session, SpeechError, Word, Words
from voxgate.client.utterance import Utterance
from voxgate.pipeline.interface import SpeechRequest

from .lost_connections import WITHIN_S
from .lost_replicas import lose
from .model_free_pipeline import ModelFreePipeline
from .retractions import SEED, kept_pieces, offline_audio, recorded_requests, text_of

SLOTS = 10


def simulate_retractions_elsewhere(seed: int) -> tuple[int, int]:
    """Runs one seed. Returns how often text was taken back and how often the utterance moved."""
    requests: list[list[SpeechRequest]] = []

    def make() -> Any:
        script = ToneScript(1.0, frame_s=0.01, close_s=0.02)
        tones, pipeline = ToneSynthesizer(script, slots=SLOTS), ModelFreePipeline(slots=SLOTS, frame_s=0.01)
        synthesizer = tones if seed % 2 else pipeline
        requests.append(recorded_requests(synthesizer))
        return synthesizer

    client = _Client(random.Random(seed))
    run(_scene(client, make, seed), disorder=random.Random(seed))
    if client.lost:
        return client.retractions, client.moves
    # The last gateway that opened a speech is not known by its place; its speech is the one that gives this audio.
    possible = [each[-1] for each in requests if each]
    heard = [run(offline_audio(make(), request, client.pieces)) for request in possible]
    assert bytes(client.audio) in heard
    text = "".join(piece for piece in client.pieces if piece is not None)
    assert [text[word.start : word.end] for word in client.words] == text.split()
    times = [time for word in client.words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    return client.retractions, client.moves


class _Client:
    def __init__(self, chance: random.Random) -> None:
        self.audio = bytearray()
        self.words: list[Word] = []
        self.pieces: list[str | None] = []
        self.retractions = self.moves = 0
        self.lost = False
        """Whether the utterance ended with an error."""
        self._chance = chance

    async def live(self, session: Session) -> None:
        async with session.utterance(format=AudioFormat(), words=True, seed=SEED) as utterance:
            writing, characters = asyncio.create_task(self._write(utterance)), None
            try:
                async for event in utterance.events():
                    match event:
                        case Audio():
                            self.audio += event.payload
                        case Words():
                            self.words += event.words
                        case Retracted():
                            self.words = list(_kept_words(self.words, event))
                        case Resumed():
                            self.moves += event.moved
                        case Done():
                            characters = event.characters
            except SpeechError as error:
                if not error.retryable:
                    raise
                self.lost = True
            finally:
                await asyncio.gather(writing, return_exceptions=self.lost)
        if not self.lost:  # only now it is known whether the last retraction came in time
            assert characters == sum(len(piece or "") for piece in self.pieces)

    async def _write(self, utterance: Utterance) -> None:
        chance = self._chance
        await self._say(utterance, text_of(chance, chance.randint(4, 30)))
        if chance.random() < 0.5:
            await utterance.end()
        for _ in range(chance.choice([1, 2, 3])):
            await asyncio.sleep(chance.choice([0.0, chance.uniform(0, 1), chance.uniform(0, 4)]))
            before = list(self.pieces)
            text = "".join(piece for piece in before if piece is not None)
            asked = chance.choice([0, chance.randint(0, len(text)), len(text)])
            answering = asyncio.create_task(utterance.retract(asked, timeout_s=60))
            await asyncio.sleep(0)
            self.pieces = []
            try:
                await self._say(utterance, text_of(chance, chance.randint(1, 8)))
                answer = await answering
            except SpeechError as error:
                await asyncio.gather(answering, return_exceptions=True)
                if error.code != "utterance_ended" and not error.retryable:
                    raise
                self.pieces = before
                return
            assert answer.characters == max(asked, answer.flush_at or 0) or answer.audio_ms is None
            self.pieces = kept_pieces(before, answer.characters, answer.flush_at) + self.pieces
            self.retractions += 1
        await utterance.end()

    async def _say(self, utterance: Utterance, text: str) -> None:
        for word in text.split(" ")[:-1]:
            self.pieces.append(word + " ")
            await utterance.send(word + " ")
            if self._chance.random() < 0.05:
                self.pieces.append(None)
                await utterance.flush()


def _kept_words(words: list[Word], answer: Retracted) -> Iterator[Word]:
    """Yields the words that are not void; one that was told to end behind the cut ends there."""
    for word in words:
        if word.start < answer.void_from:
            cut_ms = word.end_ms if answer.audio_ms is None else answer.audio_ms
            yield replace(word, start_ms=min(word.start_ms, cut_ms), end_ms=min(word.end_ms, cut_ms))


async def _scene(client: _Client, make: Any, seed: int) -> None:
    losses = random.Random(seed)
    async with LossyFleet(make, chance=random.Random(seed), resume_s=WITHIN_S, starts_per_s=1000) as fleet:
        connected = asyncio.Barrier(2)
        losing = asyncio.create_task(lose(fleet, losses, connected))
        async with fleet.client("peer") as session:
            await connected.wait()
            async with asyncio.timeout(300):
                await client.live(session)
        losing.cancel()
        await asyncio.gather(losing, return_exceptions=True)
