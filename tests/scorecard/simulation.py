"""The whole gateway in virtual time under random clients and faults; every seed replays the same."""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import Any

from fakes.bench import PCM, Bench
from fakes.packets import s16le
from fakes.sockets import FakeSocket
from fakes.tone import Script, tone_pcm
from fakes.virtual_time import run
from voxgate.pipeline.errors import GenerationFailed

WORDS = ("well", "indeed,", "so", "it", "is.", "Never", "mind", "the", "weather!", "é", "\U0001f600")
ENDS_BY = {"done", "interrupted"}
REFUSES_ONLY = {
    "text_too_long",
    "unknown_utterance",
    "duplicate_utterance",
    "utterance_ended",
    "rate_limited",
    "bad_message",
}


class Client:
    """Speaks a few utterances at random paces over a network with a delay, and now and then does not behave."""

    def __init__(self, bench: Bench, chance: random.Random, number: int) -> None:
        self.socket: FakeSocket = bench.connect(f"key{number % 3}")
        self.connection = bench.runs[-1]
        self.chance = chance
        self.delay_s = chance.choice([0.0, 0.0, 0.02, 0.4])
        self.arrives_s = 0.0
        self.texts: dict[str, str] = {}
        self.complete: set[str] = set()
        self.lost = False
        """Its socket was broken or its messages were damaged: it can rely on no answer."""

    async def live(self) -> None:
        await asyncio.sleep(self.chance.random())
        await asyncio.gather(*(self.speak(f"u{i}") for i in range(self.chance.randint(1, 3))), self.misbehave())

    def send(self, **fields: Any) -> None:
        """In order, each after its own time on the way."""
        loop = asyncio.get_running_loop()
        self.arrives_s = max(self.arrives_s, loop.time() + self.chance.uniform(0, self.delay_s))
        loop.call_at(self.arrives_s, lambda: self.socket.put(**fields))
        self.arrives_s += 0.004  # a disorderly loop's timers are late by less

    async def speak(self, name: str) -> None:
        chance = self.chance
        self.texts[name] = ""
        pacing = chance.choice(["playback", "playback", "none"])
        self.send(type="start", utterance=name, format=PCM, pacing=pacing, seed=chance.randrange(100))
        for _ in range(chance.randint(1, 12)):
            fragment = chance.choice(WORDS) + " " * chance.randint(0, 1)
            self.texts[name] += fragment
            self.send(type="text", utterance=name, text=fragment)
            if chance.random() < 0.1:
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
                self.send(type="start", utterance="misspelt", voice="nobody")

    def check(self) -> None:
        started = {m["utterance"]: m for m in self.socket.of("started")}
        for name, text in self.texts.items():
            ends = [m["type"] for m in self.socket.messages if m.get("utterance") == name and m["type"] in ENDS_BY]
            failures = [
                m for m in self.socket.of("error") if m.get("utterance") == name and m["code"] not in REFUSES_ONLY
            ]
            assert len(ends) + len(failures) <= 1, "an utterance ends once"
            if name in self.complete and not self.lost and not self.socket.closed:
                assert ends or failures, "what was ended by the client is answered"
            if name in started:
                self._check_audio(text, started[name], whole="done" in ends, ended=name in self.complete)

    def _check_audio(self, text: str, started: dict[str, Any], *, whole: bool, ended: bool) -> None:
        parts = self.socket.audio(started["number"])
        assert [h.seq for h, _ in parts] == list(range(len(parts)))
        assert [h.pts for h, _ in parts] == [sum(h.samples for h, _ in parts[:i]) for i in range(len(parts))]
        audio = b"".join(p for _, p in parts)
        offline = s16le(tone_pcm(text, started["seed"]))
        if whole:
            assert parts[-1][0].last
            assert audio == offline
        elif ended:
            assert offline.startswith(audio)


def simulate(seed: int) -> str:
    """Play one seed. Returns a digest of every message with its time; raises AssertionError when a promise breaks."""
    chance = random.Random(seed)
    script = Script(
        chunk_frames=chance.choice([1, 2, 4]),
        frame_s=chance.choice([0.0, 0.01, 0.05]),
        start_s=chance.choice([0.0, 1.0]),
        close_s=chance.choice([0.0, 0.02, 0.5]),
        fail_frame=chance.choice([None, None, None, 12]),
    )

    async def scene() -> str:
        async with Bench(script, slots=chance.randint(1, 4), queue_length=4) as bench:
            clients = [Client(bench, chance, number) for number in range(chance.randint(1, 5))]
            lives = [asyncio.create_task(client.live()) for client in clients]
            await _break_something(bench, chance)
            await asyncio.gather(*lives)
            await asyncio.sleep(120)
            for client in clients:
                client.check()
            return _digest(clients)

    return run(scene(), disorder=chance)


async def _break_something(bench: Bench, chance: random.Random) -> None:
    await asyncio.sleep(2 * chance.random())
    match chance.randrange(8):
        case 0:
            bench.synthesizer.lose()
            await bench.synthesizer.start()
        case 1 if bench.synthesizer.open_speeches:
            chance.choice(list(bench.synthesizer.open_speeches)).lose(GenerationFailed("this one alone"))
        case 2 if bench.synthesizer.open_speeches:
            chance.choice(list(bench.synthesizer.open_speeches)).lose(RuntimeError("nobody expects this one"))
        case 3:
            for session in bench.sessions:
                session.drain(5000, asyncio.get_running_loop().time() + 0.2)


def _digest(clients: list[Client]) -> str:
    seen = hashlib.sha256()
    for client in clients:
        for at_s, message in zip(client.socket.times_s, client.socket.sent, strict=True):
            seen.update(f"{at_s:.6f}".encode())
            seen.update(message if isinstance(message, bytes) else message.encode())
    return seen.hexdigest()
