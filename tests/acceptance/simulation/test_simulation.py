from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from fakes.gateway.in_process import InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.pipeline.errors import GenerationFailed

from ..scorecard.card import Trial, row
from .scenario import simulate

REPLAYS = 50
"""One seed in so many is played twice."""


@row(
    "S2",
    "simulation in virtual time: delay, reorder, stalls, cancels, half-closes, engine deaths",
    "10,000 seeds, 0 failures; a seed replays the same",
    light_s=15,
    nightly_s=300,
)
def simulation(trial: Trial) -> None:
    """`--seed` is the first seed played; a failure names its own."""
    seeds = range(trial.seed, trial.seed + trial.size(10_000, light=500))
    failures, unlike = 0, 0
    for seed in seeds:
        try:
            digest = simulate(seed)
        except Exception as failure:
            failures += 1
            trial.missed.append(f"seed {seed}: {type(failure).__name__} {failure}"[:300])
        else:
            unlike += seed % REPLAYS == 0 and simulate(seed) != digest
    trial.note("seeds", len(seeds))
    trial.equal("failures", failures, 0)
    trial.equal("replays that differ", unlike, 0)


MOMENTS_AT_MOST = 2000
STEP_S = 0.003


@row(
    "S3",
    "cancel, disconnect, half-close or interrupt at every turn of one utterance, with another waiting",
    "slot freed, outbox empty, no task left, engine request aborted: 100 %",
    light_s=6,
    nightly_s=6,
)
def cancel_anywhere(trial: Trial) -> None:
    ends: dict[str, Callable[[InProcessGateway, FakeSocket], object]] = {
        "cancel": lambda bench, _: bench.runs[0].cancel(),
        "disconnect": lambda _, socket: socket.disconnect(),
        "half-close": lambda _, socket: socket.half_close(),
        "interrupt": lambda _, socket: socket.put(type="interrupt", utterance="a"),
        "engine death": lambda bench, _: bench.synthesizer.lose(),
    }
    moments = 0
    for name, end in ends.items():
        for pacing in ("none", "playback"):
            moment = 0
            while not run(_cancel_scene(end, pacing, moment)):
                moment += 1
                assert moment < MOMENTS_AT_MOST
            assert moment > 10, f"{name}: the utterances were not under way"
            moments += moment
    trial.note("moments", moments)
    trial.note("clean", "100 %")  # an unclean one raises


async def _cancel_scene(end: Callable[[InProcessGateway, FakeSocket], object], pacing: str, moment: int) -> bool:
    """End it then. Returns whether everything had been said before."""
    async with InProcessGateway(
        ToneScript(close_s=0.0 if pacing == "none" else 0.02, frame_s=0.0 if pacing == "none" else 0.01), slots=1
    ) as bench:
        socket = bench.connect()
        say(socket, "a", "Good.", pacing=pacing)
        say(socket, "b", "Bye.", pacing=pacing)
        # At full speed every turn of the loop counts; at the pace of playback it is time that moves.
        if pacing == "playback":
            await asyncio.sleep(moment * STEP_S)
        else:
            for _ in range(moment):
                await asyncio.sleep(0)
        finished = len(socket.of("done")) == 2
        under_way = bench.sessions[0].active
        end(bench, socket)
        await asyncio.sleep(5)
        bench.runs[0].cancel()
        await asyncio.sleep(1)
        assert bench.runs[0].done()
        assert all(utterance.outbox.next_samples is None for utterance in under_way)
        assert all(speech.closed for speech in bench.synthesizer.speeches), "an engine request is left"
        # Leaving the bench asserts that no speech, slot, place in the queue or task is left.
        return finished


SPEAKERS = 8
TEXT = "The quick brown fox jumps over the lazy dog. "


@row(
    "F3",
    "one request poisons a step: it fails with an error of ours, or one nobody expects",
    "only that utterance fails",
    light_s=3,
    nightly_s=8,
)
def poisoned_request(trial: Trial) -> None:
    """Through the gateway; that the engine fails one request alone is tests/pipeline/talker's to show."""
    poisons = trial.size(400, light=40)
    for number in range(poisons):
        run(_poison_scene(random.Random(trial.seed + number)))
    trial.note("poisoned", poisons)
    trial.note("others unharmed", "100 %")  # a harmed one raises


async def _poison_scene(chance: random.Random) -> None:
    async with InProcessGateway(ToneScript(chunk_frames=chance.choice([1, 3])), slots=SPEAKERS) as bench:
        sockets = [bench.connect(f"k{n}") for n in range(SPEAKERS)]
        for number, socket in enumerate(sockets):
            say(socket, "a", TEXT * 2 + str(number), pacing=chance.choice(["playback", "none"]))
        await asyncio.sleep(0.001)
        poisoned = chance.randrange(SPEAKERS)
        speech = bench.synthesizer.speeches[poisoned]
        say(sockets[poisoned], "b", TEXT)
        if not speech.finish_reason:
            await asyncio.sleep(chance.uniform(0, 2))
        speech.lose(chance.choice([GenerationFailed("poison"), RuntimeError("poison"), MemoryError("poison")]))
        await asyncio.sleep(60)
        for number, socket in enumerate(sockets):
            _check(socket, TEXT * 2 + str(number), may_fail=number == poisoned)
        assert "b" in {done["utterance"] for done in sockets[poisoned].of("done")}, "the socket goes on"


def _check(socket, text: str, *, may_fail: bool) -> None:
    errors = [(error["code"], error["utterance"]) for error in socket.of("error")]
    if may_fail and errors:
        assert errors == [("generation_failed", "a")]
        return
    assert not errors
    started = next(m for m in socket.of("started") if m["utterance"] == "a")
    assert b"".join(payload for _, payload in socket.audio(started["number"])) == s16le(tone_pcm(text))
