"""The whole gateway in virtual time under random clients and faults; every seed replays the same."""

from __future__ import annotations

import asyncio
import random

import pytest
from fakes.bench import PCM, Bench
from fakes.packets import s16le
from fakes.sockets import FakeSocket
from fakes.tone import Script, tone_pcm
from fakes.virtual_time import run

WORDS = ("well", "indeed,", "so", "it", "is.", "Never", "mind", "the", "weather!", "é", "\U0001f600")
ENDS_BY = {"done", "interrupted"}
REFUSES_ONLY = {
    "text_too_long",
    "unknown_utterance",
    "duplicate_utterance",
    "utterance_ended",
    "rate_limited",
}


class Client:
    """Speaks a few utterances at random paces, and now and then does not behave."""

    def __init__(self, bench: Bench, chance: random.Random, key: int) -> None:
        self.socket: FakeSocket = bench.connect(f"key{key % 3}")
        self.chance = chance
        self.texts: dict[str, str] = {}
        self.complete: set[str] = set()

    async def live(self) -> None:
        await asyncio.sleep(self.chance.random())
        await asyncio.gather(*(self.speak(f"u{i}") for i in range(self.chance.randint(1, 3))), self.misbehave())

    async def speak(self, name: str) -> None:
        chance, socket = self.chance, self.socket
        self.texts[name] = ""
        pacing = chance.choice(["playback", "playback", "none"])
        socket.put(type="start", utterance=name, format=PCM, pacing=pacing, seed=chance.randrange(100))
        for _ in range(chance.randint(1, 12)):
            fragment = chance.choice(WORDS) + " " * chance.randint(0, 1)
            self.texts[name] += fragment
            socket.put(type="text", utterance=name, text=fragment)
            if chance.random() < 0.1:
                socket.put(type="flush", utterance=name)
            await asyncio.sleep(chance.choice([0, 0.03, 0.2]))
        if chance.random() < 0.15:
            socket.put(type="interrupt", utterance=name)
        elif chance.random() < 0.95:
            socket.put(type="end", utterance=name)
            self.complete.add(name)

    async def misbehave(self) -> None:
        await asyncio.sleep(self.chance.random() * 3)
        kind = self.chance.randrange(8)
        if kind == 0:
            self.socket.disconnect()
        elif kind == 1:
            self.socket.stop_reading()
            await asyncio.sleep(self.chance.choice([0.5, 2, 9]))
            self.socket.read_again()
        elif kind == 2:
            self.socket.put(type="ack", utterance="u0", played_samples=self.chance.randrange(50_000))

    def check(self) -> None:
        numbers = {m["utterance"]: m for m in self.socket.of("started")}
        for name, text in self.texts.items():
            ends = [m["type"] for m in self.socket.messages if m.get("utterance") == name and m["type"] in ENDS_BY]
            failures = [
                m for m in self.socket.of("error") if m.get("utterance") == name and m["code"] not in REFUSES_ONLY
            ]
            assert len(ends) + len(failures) <= 1, "an utterance ends once"
            if self.socket.close_code is None and name in self.complete and not self.socket._closed:
                assert ends or failures, "what was ended by the client is answered"
            if (started := numbers.get(name)) is None:
                continue
            parts = self.socket.audio(started["number"])
            assert [h.seq for h, _ in parts] == list(range(len(parts)))
            assert [h.pts for h, _ in parts] == [sum(h.samples for h, _ in parts[:i]) for i in range(len(parts))]
            audio = b"".join(p for _, p in parts)
            offline = s16le(tone_pcm(text, started["seed"]))
            if "done" in ends:
                assert parts[-1][0].last
                assert audio == offline
            elif name in self.complete:
                assert offline.startswith(audio)


def simulate(seed: int) -> None:
    chance = random.Random(seed)
    script = Script(
        chunk_frames=chance.choice([1, 2, 4]),
        frame_s=chance.choice([0.0, 0.01, 0.05]),
        close_s=chance.choice([0.0, 0.02]),
        fail_frame=chance.choice([None, None, None, 12]),
    )

    async def scene() -> None:
        async with Bench(script, slots=chance.randint(1, 4), queue_length=4) as bench:
            clients = [Client(bench, chance, key) for key in range(chance.randint(1, 5))]
            lives = [asyncio.create_task(client.live()) for client in clients]
            if chance.random() < 0.2:
                await asyncio.sleep(2 * chance.random())
                bench.synthesizer.lose()
                await bench.synthesizer.start()
            await asyncio.gather(*lives)
            await asyncio.sleep(120)
            for client in clients:
                client.check()

    run(scene())


@pytest.mark.parametrize("tens", range(10))
def test_random_clients_and_faults(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        simulate(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("hundreds", range(1, 51))
def test_many_random_clients_and_faults(hundreds: int) -> None:
    for seed in range(100 * hundreds, 100 * hundreds + 100):
        simulate(seed)
