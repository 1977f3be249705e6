"""Clients whose connections are lost at random moments, compared with an undisturbed run; a seed repeats a run.

The gateway's sessions and the Python client are the real ones; only the network between them is not. Even seeds speak
through the real pipeline without a model, odd ones through the tone synthesizer.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from fakes.gateway.lossy_network import LossyNetwork
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.client import (
    Audio,
    AudioFormat,
    Done,
    Reconnecting,
    Resumed,
    Session,
    SpeechError,
    Viseme,
    Visemes,
    Word,
    Words,
)
from voxgate.pipeline.errors import EngineNotReady

from .model_free_pipeline import ModelFreePipeline

WORDS = ("well", "indeed,", "so", "it", "is.", "Never", "mind", "the", "weather!", "é", "\U0001f600")
LEARNS_S = (0.0, 0.0, 0.05, 1.0, None)
"""Times after which an end learns that its connection is lost; None: by the other end's next attempt, or by silence."""
OUTAGES_S = (0.0, 0.0, 0.3, 2.0, 4.0)
WITHIN_S = 20.0
"""Time in which sessions can be resumed: noticing a silence takes 4 s, and a loss may follow at once on another one."""


@dataclass
class Plan:
    """What one client says, and when its connections are lost."""

    utterances: list[list[tuple[str | None, float]]]
    """Of each utterance the fragments, None for a flush, with the pause after each."""
    pacings: list[str]
    latency_s: float
    cuts: list[tuple[float, float | None, float | None, float]]
    """Pause before the loss, when client and gateway learn of it, and how long no connection succeeds."""


@dataclass
class Heard:
    """What a client received of one utterance."""

    audio: bytearray = field(default_factory=bytearray)
    words: list[Word] = field(default_factory=list)
    visemes: list[Viseme] = field(default_factory=list)
    done: Done | None = None
    seed: int = 0
    losses: int = 0
    moves: int = 0
    """Times that it went on at another gateway."""

    def comparable(self, *, timed: bool) -> tuple[Any, ...]:
        """Everything but times of the event loop; without `timed`, which words rather than when."""
        done = self.done
        figures = None if done is None else (done.reason, done.characters, done.frames, done.samples)
        words = self.words if timed else [(word.text, word.start, word.end) for word in self.words]
        return (bytes(self.audio), tuple(words), tuple(self.visemes), figures)


def plan(chance: random.Random) -> Plan:
    utterances = []
    for _ in range(chance.randint(1, 3)):
        fragments: list[tuple[str | None, float]] = []
        for _ in range(chance.randint(1, 30)):
            fragments.append((chance.choice(WORDS) + " ", chance.choice([0, 0, 0.03, 0.2])))
            if chance.random() < 0.1:
                fragments.append((None, 0))
        utterances.append(fragments)
    cuts = []
    for _ in range(chance.randint(1, 5)):
        client_learns_s, gateway_learns_s = chance.choice(LEARNS_S), chance.choice(LEARNS_S)
        pause_s = chance.choice([chance.uniform(0, 0.1), chance.uniform(0, 1), chance.uniform(0, 4)])
        cuts.append((pause_s, client_learns_s, gateway_learns_s, chance.choice(OUTAGES_S)))
    pacings = [chance.choice(["playback", "playback", "none"]) for _ in utterances]
    return Plan(utterances, pacings, chance.choice([0.0, 0.01, 0.15]), cuts)


def simulate_losses(seed: int) -> int:
    """Runs one seed with and without losses. Returns the losses; raises AssertionError when speech differs."""
    chance = random.Random(seed)
    plans = [plan(chance) for _ in range(chance.randint(1, 3))]
    undisturbed = run(_scene(seed, plans, disturbed=False))
    disturbed = run(_scene(seed, plans, disturbed=True), disorder=random.Random(seed))
    for expected, heard in zip(undisturbed, disturbed, strict=True):
        assert expected.done is not None
        timed = seed % 2 == 1  # the aligner's times depend on when text comes, also without losses
        assert heard.comparable(timed=timed) == expected.comparable(timed=timed)
    return sum(heard.losses for heard in disturbed)


async def _scene(seed: int, plans: list[Plan], *, disturbed: bool) -> list[Heard]:
    slots = 4 * sum(len(each.utterances) for each in plans)  # no caller waits, so that detached sessions keep theirs
    voice: Any = ModelFreePipeline(slots=slots, frame_s=0.01)
    if seed % 2:
        voice = ToneSynthesizer(ToneScript(frame_s=0.01, close_s=0.02), slots=slots)
    async with LossyNetwork(voice, resume_s=WITHIN_S, starts_per_s=1000) as network:
        heard = await asyncio.gather(*(_live(network, each, number, disturbed) for number, each in enumerate(plans)))
        return [one for each in heard for one in each]


async def _live(network: LossyNetwork, what: Plan, number: int, disturbed: bool) -> list[Heard]:
    async with network.client(f"peer{number}", latency_s=what.latency_s) as session:
        cutting = asyncio.create_task(_cut(network, session, what)) if disturbed else None
        heard = await asyncio.gather(*(speak(session, what, each) for each in range(len(what.utterances))))
        if cutting is not None:
            cutting.cancel()
            await asyncio.gather(cutting, return_exceptions=True)
            network.reachable = True
        return heard


async def _cut(network: LossyNetwork, session: Session, what: Plan) -> None:
    for pause_s, client_learns_s, gateway_learns_s, outage_s in what.cuts:
        await asyncio.sleep(pause_s)
        network.reachable = not outage_s
        session._link.wire.connection.cut(client_learns_s, gateway_learns_s)  # type: ignore[attr-defined]  # a ClientEnd
        await asyncio.sleep(outage_s)
        network.reachable = True


async def speak(session: Session, what: Plan, number: int) -> Heard:
    """Speaks an utterance of the plan; begins again after a refusal, as clients do, where it had not begun."""
    while True:
        heard = Heard()
        try:
            await _speak(session, what, number, heard)
        except SpeechError as error:
            if error.code != EngineNotReady.code or heard.audio:
                raise
            await asyncio.sleep((error.retry_after_ms or 0) / 1000)
        else:
            return heard


async def _speak(session: Session, what: Plan, number: int, heard: Heard) -> None:
    options: dict[str, Any] = {"words": True, "visemes": True, "seed": number, "pacing": what.pacings[number]}
    async with session.utterance(format=AudioFormat(), **options) as utterance:

        async def write() -> None:
            for fragment, pause_s in what.utterances[number]:
                await (utterance.flush() if fragment is None else utterance.send(fragment))
                await asyncio.sleep(pause_s)
            await utterance.end()

        writing = asyncio.create_task(write())
        try:
            async for event in utterance.events():
                match event:
                    case Audio():
                        heard.audio += event.payload
                    case Words():
                        heard.words += event.words
                    case Visemes():
                        heard.visemes += event.visemes
                    case Done():
                        heard.done = event
                    case Reconnecting():
                        heard.losses += 1
                    case Resumed():
                        heard.moves += event.moved
            await writing
        finally:
            writing.cancel()
