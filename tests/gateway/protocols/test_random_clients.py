"""Random clients of each protocol against a talker that fails and a queue that is full: the marks always come."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run

PCM = "encoding=linear16&sample_rate=24000"
ROUNDS = 40


def bench_of(chance: random.Random) -> InProcessGateway:
    failing = chance.choice([None, None, 5, 30])
    return InProcessGateway(
        ToneScript(fail_frame=failing, frame_s=chance.choice([0.0, 0.02]), close_s=chance.choice([0.0, 0.3])),
        slots=chance.choice([1, 2, 6]),
        starts_per_s=1000,
        interrupts_per_s=1000,
        queue_length=3,
        queue_wait_ms=1000,
    )


def words(chance: random.Random) -> str:
    return chance.choice(
        ["Hello ", "wor", "ld. ", "A longer sentence that takes its time to be spoken. ", " ", "x" * 2500]
    )


async def pause(chance: random.Random) -> None:
    if chance.random() < 0.4:
        await asyncio.sleep(chance.choice([0.01, 0.3, 2]))


@pytest.mark.parametrize("seed", range(25))
def test_every_context_ends_once(seed: int) -> None:
    chance = random.Random(seed)

    def message() -> dict[str, Any]:
        id = chance.choice("abcdefg")
        kinds: list[dict[str, Any]] = [
            {"text": words(chance), "context_id": id},
            {"text": words(chance), "context_id": id, "flush": True},
            {"text": "", "context_id": id},
            {"text": ""},
            {"context_id": id, "flush": True},
            {"context_id": id, "close_context": True},
        ]
        return chance.choices(kinds, [8, 3, 1, 1, 3, 4])[0]

    async def scene() -> None:
        async with bench_of(chance) as bench:
            auto = chance.choice(["true", "false"])
            socket = bench.dial(f"/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000&auto_mode={auto}")
            opened: Counter[str] = Counter()
            for _ in range(ROUNDS):
                fields = message()
                opened[fields.get("context_id", "")] += bool(fields.get("text"))
                socket.put(**fields)
                await pause(chance)
            socket.put(close_socket=True)
            assert await socket.hung_up() == 1000
            for id in "abcdefg":
                mine = [m for m in socket.messages if m.get("contextId") == id]
                assert not mine or mine[-1]["isFinal"], f"context {id} has no end"
                ends = sum(bool(m.get("isFinal")) for m in mine)
                assert bool(mine) <= ends <= opened[id]

    run(scene())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(25))
def test_every_flush_is_answered(seed: int, version: int) -> None:
    chance = random.Random(seed)
    stop = {1: "Clear", 2: "Interrupt"}[version]

    async def scene() -> None:
        async with bench_of(chance) as bench:
            socket = bench.dial(f"/v{version}/speak?{PCM}")
            sent: list[str] = []
            for _ in range(ROUNDS):
                kind = chance.choices(["Speak", "Flush", stop], [10, 3, 1])[0]
                sent.append(kind)
                socket.put(type=kind, text=words(chance))
                await pause(chance)
            socket.put(type="Flush")
            socket.put(type="Close")
            assert await socket.hung_up() == 1000
            told = [m["type"] for m in socket.messages]
            answers = told.count("Flushed") + told.count("Warning")
            if stop not in sent:
                assert told.count("Flushed") + silent_warnings(socket) == sent.count("Flush") + 1
            assert answers > 0
            assert told.count({1: "Cleared", 2: "SpeechInterrupted"}[version]) + silent_warnings(socket) >= (
                sent.count(stop) if version == 1 else 0
            )
            if version == 2:
                assert told[-1] == "SessionMetadata"
                assert told.count("SpeechMetadata") == told.count("Flushed")
                starts = [m["speech_id"] for m in socket.of("SpeechStarted")]
                assert len(starts) == len(set(starts))

    run(scene())


def silent_warnings(socket: FakeSocket) -> int:
    """Flushes that were answered with a warning alone."""
    return sum(m["code"] == "NO_ACTIVE_SPEECH" for m in socket.of("Warning"))


@pytest.mark.parametrize("seed", range(25))
def test_every_context_of_cartesia_is_answered(seed: int) -> None:
    chance = random.Random(seed)
    ids = "abcdefg"
    options = {"voice": "ada", "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}}

    def message(id: str) -> dict[str, Any]:
        kinds: list[dict[str, Any]] = [
            {"transcript": words(chance), "continue": True},
            {"transcript": words(chance), "continue": True, "max_buffer_delay_ms": 0},
            {"transcript": words(chance), "continue": True, "flush": True},
            {"transcript": words(chance), "continue": False},
            {"transcript": "", "continue": False},
            {"cancel": True},
        ]
        return {"context_id": id, **options, **chance.choices(kinds, [8, 3, 3, 2, 2, 1])[0]}

    async def scene() -> None:
        async with bench_of(chance) as bench:
            socket = bench.dial("/tts/websocket")
            ends: Counter[str] = Counter()
            for _ in range(ROUNDS):
                fields = message(chance.choice(ids))
                ends[fields["context_id"]] += not fields.get("continue")
                socket.put(**fields)
                await pause(chance)
            for id in ids:
                ends[id] += 1
                socket.put(context_id=id, transcript="", **{"continue": False})
            await asyncio.sleep(200)
            assert bench.admission.active == 0
            assert bench.admission.queued == 0
            for id in ids:
                mine = [m for m in socket.messages if m["context_id"] == id]
                assert mine[-1]["done"], f"context {id} has no end"
                assert sum(m["type"] == "done" for m in mine) <= ends[id]
                flushes = [m["flush_id"] for m in mine if m["type"] == "chunk"]
                assert all(flush_id >= 1 for flush_id in flushes)

    run(scene())


def test_random_payloads_break_no_protocol() -> None:
    chance = random.Random(3)
    pieces: list[Any] = ["", "a", "Speak", 5, -1, 1e300, None, True, [], {}, "x" * 100, {"value": 3}, {"value": "x"}]
    keys = ["type", "text", "context_id", "flush", "close_context", "playback_offset", "speed", "voice_settings"]
    keys += ["transcript", "continue", "cancel", "voice", "output_format", "language", "sequence"]

    async def scene() -> None:
        for url in (
            "/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000",
            "/v1/text-to-speech/ada/stream-input?output_format=pcm_24000",
            f"/v1/speak?{PCM}",
            f"/v2/speak?{PCM}",
            "/tts/websocket",
            "/v1/audio/speech/ws",
        ):
            for _ in range(150):
                async with InProcessGateway() as bench:
                    socket = bench.dial(url)
                    for _ in range(4):
                        fields = {chance.choice(keys): chance.choice(pieces) for _ in range(chance.randrange(5))}
                        socket.put_raw(chance.choice([json.dumps(fields), json.dumps(chance.choice(pieces)), "{"]))
                    await asyncio.sleep(0.5)
                    assert all(not run.done() or run.exception() is None for run in bench.runs)

    run(scene())
