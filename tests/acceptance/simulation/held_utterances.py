"""Utterances that are held and continued at random moments, compared with an undisturbed run; a seed repeats a run.

The gateway's sessions and the Python client are the real ones. Even seeds speak through the real pipeline without a
model, odd ones through the tone synthesizer. A client plays what it gets, throws away what it has not played when it
interrupts, and plays on where the gateway says. Meanwhile connections and the engine are lost, and others want slots.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fakes.gateway.lossy_network import LossyNetwork
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.client import Audio, AudioFormat, Done, Session, SpeechError, Utterance, Viseme, Visemes, Word, Words
from voxgate.codecs.encode import PacketEncoder

from .lost_connections import plan as plan_text
from .model_free_pipeline import ModelFreePipeline

RATE_HZ = 24_000
HOLD_MS = 10_000
FORMATS = (AudioFormat(), AudioFormat(packet_ms=20), AudioFormat("opus"), AudioFormat("opus", packet_ms=20))


@dataclass(frozen=True)
class Hold:
    """`after_s`: since the last one; `held_s`: for how long; `behind_ms`: not played of what was received, or None for
    the playback clock; `during`: what happens meanwhile."""

    after_s: float
    held_s: float
    behind_ms: int | None
    during: str


@dataclass
class Plan:
    """What one client says, how, and when it holds it."""

    fragments: list[tuple[str | None, float]]
    format: AudioFormat
    pacing: str
    holds: list[Hold]


@dataclass
class Heard:
    """What the listener of one utterance heard: samples without gap, or the packets of a codec."""

    pcm: bytearray = field(default_factory=bytearray)
    packets: dict[int, bytes] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)
    visemes: list[Viseme] = field(default_factory=list)
    done: Done | None = None
    holds: int = 0
    repeated: int = 0
    """Packets that came again."""

    def comparable(self, *, timed: bool) -> tuple[Any, ...]:
        """Everything but times of the event loop; without `timed`, which words rather than when."""
        done = self.done
        figures = None if done is None else (done.reason, done.characters, done.frames, done.samples)
        words = self.words if timed else [(word.text, word.start, word.end) for word in self.words]
        payloads = [self.packets[seq] for seq in sorted(self.packets) if self.packets[seq]]
        return (bytes(self.pcm), tuple(payloads), tuple(words), tuple(self.visemes), figures)


def plan(chance: random.Random) -> Plan:
    holds = []
    for _ in range(chance.randint(1, 4)):
        held_s = chance.choice([0.0, 0.02, chance.uniform(0, 1), chance.uniform(1, 6)])
        after_s = chance.choice([chance.uniform(0, 0.1), chance.uniform(0, 1), chance.uniform(0, 3)])
        behind_ms = chance.choice([None, None, 0, chance.randint(0, 390), chance.randint(0, 390)])
        during = chance.choice(["", "", "", "lose connection", "lose engine", "others wait"])
        if during in [each.during for each in holds]:
            during = ""  # an utterance survives three losses of the engine, of all three clients
        holds.append(Hold(after_s, held_s, behind_ms, during))
    fragments = plan_text(chance).utterances[0] * 2
    return Plan(fragments, chance.choice(FORMATS), chance.choice(["playback", "playback", "none"]), holds)


def simulate_holds(seed: int) -> tuple[int, int]:
    """Runs one seed with and without holds. Returns holds and packets sent again; raises AssertionError."""
    chance = random.Random(seed)
    plans = [plan(chance) for _ in range(chance.randint(1, 3))]
    undisturbed = run(_scene(seed, plans, disturbed=False))
    disturbed = run(_scene(seed, plans, disturbed=True), disorder=random.Random(seed))
    for expected, heard in zip(undisturbed, disturbed, strict=True):
        assert expected.done is not None
        timed = seed % 2 == 1  # the aligner's times depend on when text comes, also without holds
        assert heard.comparable(timed=timed) == expected.comparable(timed=timed)
    return sum(heard.holds for heard in disturbed), sum(heard.repeated for heard in disturbed)


async def _scene(seed: int, plans: list[Plan], *, disturbed: bool) -> list[Heard]:
    # With few slots the others that want one get it from those that are held.
    slots = len(plans)
    voice: Any = ModelFreePipeline(slots=slots, frame_s=0.01)
    if seed % 2:
        voice = ToneSynthesizer(ToneScript(frame_s=0.01, close_s=0.02), slots=slots)
    options: dict[str, Any] = {"resume_s": 20, "starts_per_s": 1000, "queue_wait_ms": 60_000, "caller_share": 1}
    async with LossyNetwork(voice, encoder=PacketEncoder, **options) as network:
        clients = (_live(network, each, number, disturbed) for number, each in enumerate(plans))
        return list(await asyncio.gather(*clients))


async def _live(network: LossyNetwork, what: Plan, number: int, disturbed: bool) -> Heard:
    async with network.client(f"peer{number}") as session:
        return await Listener(network, session, what, number).listen(disturbed=disturbed)


class Listener:
    """Plays one utterance, and holds it when it is to."""

    def __init__(self, network: LossyNetwork, session: Session, what: Plan, number: int) -> None:
        self.heard = Heard()
        self._network, self._session, self._what, self._number = network, session, what, number
        self._end = 0
        """Behind the samples that were received, without `pre_skip`."""
        self._tasks: list[asyncio.Task[None]] = []

    async def listen(self, *, disturbed: bool) -> Heard:
        what = self._what
        options: dict[str, Any] = {"words": True, "visemes": True, "seed": self._number, "pacing": what.pacing}
        async with self._session.utterance(format=what.format, **options) as utterance:
            writing = asyncio.create_task(self._write(utterance))
            holding = asyncio.create_task(self._hold(utterance)) if disturbed else None
            await self._read(utterance)
            while holding is not None and not (holding.done() and self.heard.done is not None):
                await asyncio.sleep(0.01)  # a hold of a done utterance has it done once more
                await self._read(utterance)
            await writing
            if holding is not None:
                await holding
            await asyncio.gather(*self._tasks)
        return self.heard

    async def _write(self, utterance: Utterance) -> None:
        for fragment, pause_s in self._what.fragments:
            await (utterance.flush() if fragment is None else utterance.send(fragment))
            await asyncio.sleep(pause_s)
        await utterance.end()

    async def _read(self, utterance: Utterance) -> None:
        heard, plain = self.heard, self._what.format.codec == "pcm"
        async for event in utterance.events():
            match event:
                case Audio():
                    self._end = event.pts + event.samples - utterance.format.pre_skip
                    if plain:
                        heard.pcm += event.payload
                        continue
                    heard.repeated += event.seq in heard.packets
                    assert heard.packets.setdefault(event.seq, event.payload) == event.payload
                case Words():
                    heard.words += event.words
                case Visemes():
                    heard.visemes += event.visemes
                case Done():
                    heard.done = event

    async def _hold(self, utterance: Utterance) -> None:
        heard_ms = 0  # before this it cannot be any more: there it went on
        for each in self._what.holds:
            await asyncio.sleep(each.after_s)
            end_ms = max(0, self._end) * 1000 // RATE_HZ
            # Of unpaced audio the gateway keeps only what it sent last, and this listener may have more to read.
            says = each.behind_ms is not None and self._what.pacing == "playback"
            played_ms = max(heard_ms, end_ms - (each.behind_ms or 0)) if says else None
            answer = await utterance.interrupt(played_ms, hold_ms=HOLD_MS)
            await asyncio.sleep(0.03)  # the listener reads what was before
            assert answer.hold_ms == HOLD_MS
            assert played_ms is None or answer.played_ms == played_ms
            heard_bytes = 2 * answer.played_ms * RATE_HZ // 1000
            if self._what.format.codec == "pcm":
                assert len(self.heard.pcm) >= heard_bytes, "more was heard than received"
                self.heard.repeated += len(self.heard.pcm) > heard_bytes
                del self.heard.pcm[heard_bytes:]
            self.heard.done = None
            self._disturb(each)
            await asyncio.sleep(each.held_s)
            continued = await utterance.continue_speech()
            assert continued.played_ms == answer.played_ms
            heard_ms = answer.played_ms
            self.heard.holds += 1

    def _disturb(self, hold: Hold) -> None:
        """Has something happen while the utterance is held."""
        if hold.during == "lose connection":
            self._session._link.wire.connection.cut(0.0, None)  # type: ignore[attr-defined]  # a ClientEnd
        elif hold.during == "lose engine":
            self._tasks.append(asyncio.create_task(self._lose_engine(hold.held_s * 0.7)))
        elif hold.during == "others wait":
            self._tasks.append(asyncio.create_task(self._say_something_else()))

    async def _lose_engine(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        voice: Any = self._network.synthesizer
        # One that asks for its first slot without an engine is refused, held or not.
        started = all(each.speech is not None for session in self._network.sessions for each in session.active)
        if voice.state.speaks and started:
            voice.lose()
            await asyncio.sleep(1.0)
            await voice.start()
            self._network.admission.renew(asyncio.get_running_loop().time())

    async def _say_something_else(self) -> None:
        with suppress(SpeechError):  # the engine may be lost meanwhile
            async with self._network.client("other") as session, session.utterance() as utterance:
                await utterance.feed(["Never mind the weather, it is fine."])
                async for _ in utterance.audio():
                    pass
