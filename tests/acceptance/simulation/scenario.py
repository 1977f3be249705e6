"""The whole gateway in virtual time under random clients and faults; a seed always gives the same run.

Even seeds speak through the real pipeline, over an engine and a codec without a model. Odd seeds speak through the tone
synthesizer, which can be slow to confirm the end of a speech and can fail in more ways.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from fakes.gateway.in_process import PCM, InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.client.utterance import MESSAGE_REFUSED_CODES
from voxgate.codecs.pcm import Pcm
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import GenerationFailed

from .model_free_pipeline import ModelFreePipeline, SentText, offline

WORDS = ("well", "indeed,", "so", "it", "is.", "Never", "mind", "the", "weather!", "é", "\U0001f600")
ENGINE_LOSS_TIMEOUT_S = Settings().engine_loss_timeout_s
ENDS_BY = {"done", "interrupted"}


OfflineAudio = Callable[[SentText, int], Awaitable[Pcm]]
"""The audio of a text when no other utterance is open, by fragments and seed."""


async def _tones(sent: SentText, seed: int) -> Pcm:
    return tone_pcm("".join(fragment for fragment in sent if fragment is not None), seed)


class SimulatedClient:
    """Asks for a few utterances at random paces over a network with a delay, and sometimes misbehaves."""

    def __init__(self, gateway: InProcessGateway, chance: random.Random, number: int) -> None:
        self.socket: FakeSocket = gateway.connect(f"key{number % 3}")
        self.connection = gateway.runs[-1]
        self.chance = chance
        self.delay_s = chance.choice([0.0, 0.0, 0.02, 0.4])
        self.arrives_s = 0.0
        self.sent: dict[str, list[str | None]] = {}
        self.complete: set[str] = set()
        self.lost = False
        """Whether its connection broke, so that answers may be missing."""

    async def live(self) -> None:
        await asyncio.sleep(self.chance.random())
        await asyncio.gather(*(self.request(f"u{i}") for i in range(self.chance.randint(1, 3))), self.misbehave())

    def send(self, **fields: Any) -> None:
        """Send a message in order, with its own delay."""
        loop = asyncio.get_running_loop()
        self.arrives_s = max(self.arrives_s, loop.time() + self.chance.uniform(0, self.delay_s))
        loop.call_at(self.arrives_s, lambda: self.socket.put(**fields))
        self.arrives_s += 0.004  # more than the lateness of timers in a disorderly loop

    async def request(self, name: str) -> None:
        chance = self.chance
        sent = self.sent[name] = []
        pacing = chance.choice(["playback", "playback", "none"])
        self.send(type="start", utterance=name, format=PCM, pacing=pacing, seed=chance.randrange(100))
        for _ in range(chance.randint(1, 12)):
            fragment = chance.choice(WORDS) + " " * chance.randint(0, 1)
            sent.append(fragment)
            self.send(type="text", utterance=name, text=fragment)
            if chance.random() < 0.1:
                sent.append(None)
                self.send(type="flush", utterance=name)
            await asyncio.sleep(chance.choice([0, 0.03, 0.2]))
        if chance.random() < 0.15:
            self.send(type="interrupt", utterance=name)
        elif chance.random() < 0.95:
            self.send(type="end", utterance=name)
            self.complete.add(name)

    async def misbehave(self) -> None:
        await asyncio.sleep(self.chance.random() * 3)
        match self.chance.randrange(10):
            case 0:
                self.lost = True
                self.socket.disconnect()
            case 1:
                self.lost = True
                self.socket.half_close()
            case 2:
                self.lost = True
                self.connection.cancel()
            case 3:
                self.socket.stop_reading()
                await asyncio.sleep(self.chance.choice([0.5, 2, 9]))
                self.socket.read_again()
            case 4:
                self.send(type="ack", utterance="u0", played_samples=self.chance.randrange(50_000))
            case 5:
                self.send(type="start", utterance="misspelt", voice="unheard-of")

    async def check(self, offline_audio: OfflineAudio, outage_s: float) -> None:
        """`outage_s`: the longest time without an engine."""
        started = {m["utterance"]: m for m in self.socket.of("started")}
        for name, sent in self.sent.items():
            ends = [m["type"] for m in self.socket.messages if m.get("utterance") == name and m["type"] in ENDS_BY]
            failures = [
                m
                for m in self.socket.of("error")
                if m.get("utterance") == name and m["code"] not in MESSAGE_REFUSED_CODES
            ]
            assert len(ends) + len(failures) <= 1, "an utterance ends once"
            if name in self.complete and not self.lost and not self.socket.closed:
                assert ends or failures, "an utterance that the client ended gets an answer"
            if any(failure["code"] == "engine_lost" for failure in failures):
                assert outage_s > ENGINE_LOSS_TIMEOUT_S, "an utterance ends with the engine only after a timeout"
            if name in started:
                self._check_no_audio_after_end(name, started[name]["number"])
                expected = s16le(await offline_audio(sent, started[name]["seed"]))
                self._check_audio(expected, started[name], whole="done" in ends, ended=name in self.complete)

    def _check_no_audio_after_end(self, name: str, number: int) -> None:
        over = False
        for message in self.socket.sent:
            if isinstance(message, bytes):
                assert not over or AudioHeader.unpack(message)[0].number != number, "audio after the end"
            elif (control := json.loads(message)).get("utterance") == name:
                over |= control["type"] in ENDS_BY or (
                    control["type"] == "error" and control["code"] not in MESSAGE_REFUSED_CODES
                )

    def _check_audio(self, expected: bytes, started: dict[str, Any], *, whole: bool, ended: bool) -> None:
        parts = self.socket.audio(started["number"])
        assert [h.seq for h, _ in parts] == list(range(len(parts)))
        assert [h.pts for h, _ in parts] == [sum(h.samples for h, _ in parts[:i]) for i in range(len(parts))]
        audio = b"".join(p for _, p in parts)
        if whole:
            assert parts[-1][0].last
            assert audio == expected
        elif ended:
            assert expected.startswith(audio)


def simulate(seed: int) -> str:
    """Run one seed. Returns a digest of every message with its time; raises AssertionError when a promise is broken."""
    chance = random.Random(seed)
    slots = chance.randint(1, 4)
    gateway, offline_audio = (_over_the_pipeline if seed % 2 == 0 else _over_tones)(chance, slots)
    return run(_scene(gateway, offline_audio, chance), disorder=chance)


def _over_the_pipeline(chance: random.Random, slots: int) -> tuple[Callable[[], InProcessGateway], OfflineAudio]:
    voice = ModelFreePipeline(
        slots=slots,
        frame_s=chance.choice([0.0, 0.01, 0.05]),
        start_s=chance.choice([0.0, 1.0]),
        chunk_frames=chance.choice([1, 2, 4]),
    )
    return lambda: InProcessGateway(synthesizer=voice, queue_length=4), offline


def _over_tones(chance: random.Random, slots: int) -> tuple[Callable[[], InProcessGateway], OfflineAudio]:
    script = ToneScript(
        chunk_frames=chance.choice([1, 2, 4]),
        frame_s=chance.choice([0.0, 0.01, 0.05]),
        start_s=chance.choice([0.0, 1.0]),
        close_s=chance.choice([0.0, 0.02, 0.5]),
        fail_frame=chance.choice([None, None, None, 12]),
    )
    return lambda: InProcessGateway(script, slots=slots, queue_length=4), _tones


async def _scene(
    open_gateway: Callable[[], InProcessGateway], offline_audio: OfflineAudio, chance: random.Random
) -> str:
    async with open_gateway() as gateway:
        clients = [SimulatedClient(gateway, chance, number) for number in range(chance.randint(1, 5))]
        lives = [asyncio.create_task(client.live()) for client in clients]
        outage_s = await _inject_fault(gateway, chance)
        await asyncio.gather(*lives)
        await asyncio.sleep(120)
        for client in clients:
            await client.check(offline_audio, outage_s)
        return _digest(clients)


async def _inject_fault(gateway: InProcessGateway, chance: random.Random) -> float:
    """Returns the longest time without an engine."""
    outage_s = 0.0
    await asyncio.sleep(2 * chance.random())
    synthesizer, which = gateway.synthesizer, chance.randrange(100)
    match chance.randrange(8):
        case 0 | 4 | 5:
            for _ in range(chance.randint(1, 3)):
                synthesizer.lose()
                lost_s = asyncio.get_running_loop().time()
                await asyncio.sleep(chance.choice([0.0, 0.3, 3.0, ENGINE_LOSS_TIMEOUT_S + 10]))
                await gateway.restart_engine()
                outage_s = max(outage_s, asyncio.get_running_loop().time() - lost_s)
                await asyncio.sleep(chance.choice([0.0, 0.01, 0.5, 2.0]))
        case 1 if isinstance(synthesizer, ModelFreePipeline):
            synthesizer.fail_one(which)
        case 1 if synthesizer.open_speeches:
            list(synthesizer.open_speeches)[which % len(synthesizer.open_speeches)].lose(
                GenerationFailed("failed alone")
            )
        case 2 if synthesizer.open_speeches and not isinstance(synthesizer, ModelFreePipeline):
            list(synthesizer.open_speeches)[which % len(synthesizer.open_speeches)].lose(RuntimeError("unexpected"))
        case 3:
            for session in gateway.sessions:
                session.drain(5000, asyncio.get_running_loop().time() + 0.2)
    return outage_s


def _digest(clients: list[SimulatedClient]) -> str:
    seen = hashlib.sha256()
    for client in clients:
        for at_s, message in zip(client.socket.times_s, client.socket.sent, strict=True):
            seen.update(f"{at_s:.6f}".encode())
            seen.update(message if isinstance(message, bytes) else message.encode())
    return seen.hexdigest()
