from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from fakes.gateway.in_process import InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run, settle, turns
from voxgate.pipeline.errors import GenerationFailed

from ..testbed.measuring import Figures, nightly
from .scenario import simulate

# Random clients and faults


@pytest.mark.parametrize("seeds", [300, nightly(10_000)])
def test_random_clients_and_faults(seeds: int, seed: int, scaled: Callable[..., int], figures: Figures) -> None:
    """Delays, reordered timers, stalls, interruptions, half-closed sockets and engine losses; see `scenario.py`."""
    failures = []
    for number in range(seed, seed + scaled(seeds)):
        try:
            simulate(number)
        except Exception as failure:
            failures.append(f"seed {number}: {type(failure).__name__} {failure}")
    figures.note("seeds", scaled(seeds))
    assert failures == []


def test_simulation_is_deterministic(seed: int) -> None:
    seeds = range(seed, seed + 10)
    assert [simulate(number) for number in seeds] == [simulate(number) for number in seeds]


# The end of an utterance at every moment

End = Callable[[InProcessGateway, FakeSocket], object]
ENDS: dict[str, End] = {
    "cancel": lambda gateway, _: gateway.runs[0].cancel(),
    "disconnect": lambda _, socket: socket.disconnect(),
    "half-close": lambda _, socket: socket.half_close(),
    "interrupt": lambda _, socket: socket.put(type="interrupt", utterance="a"),
    "engine loss": lambda gateway, _: gateway.synthesizer.lose(),
}
MAX_MOMENTS = 2000
MIN_MOMENTS = 10
"""With fewer the utterances were not under way."""
STEP_S = 0.003


@pytest.mark.parametrize("pacing", ["none", "playback"])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_end_at_every_moment_releases_everything(end: End, pacing: str) -> None:
    """One utterance speaks and another waits for its slot; they are ended after every turn of the loop."""
    moment = 0
    while not run(_end_at(end, pacing, moment)):
        moment += 1
        assert moment < MAX_MOMENTS
    assert moment > MIN_MOMENTS


async def _end_at(end: End, pacing: str, moment: int) -> bool:
    """Returns whether both utterances were finished before."""
    script = ToneScript() if pacing == "none" else ToneScript(close_s=0.02, frame_s=0.01)
    async with InProcessGateway(script, slots=1) as gateway:
        socket = gateway.connect()
        say(socket, "a", "Good.", pacing=pacing)
        say(socket, "b", "Bye.", pacing=pacing)
        # At playback pace most turns of the loop do nothing; there the moments are steps of time.
        if pacing == "playback":
            await asyncio.sleep(moment * STEP_S)
        else:
            await turns(moment)
        finished = len(socket.of("done")) == 2
        under_way = gateway.sessions[0].active
        end(gateway, socket)
        await asyncio.sleep(5)
        gateway.runs[0].cancel()
        await asyncio.sleep(1)
        assert gateway.runs[0].done()
        assert all(utterance.outbox.next_samples is None for utterance in under_way)
        assert all(speech.closed for speech in gateway.synthesizer.speeches), "an engine request is left"
        # Leaving the gateway asserts that no speech, slot, place in the queue or task is left.
        return finished


# Failures of single utterances

SPEAKERS = 8
TEXT = "The quick brown fox jumps over the lazy dog. "
FAILURES = (GenerationFailed("failed"), RuntimeError("failed"), MemoryError("failed"))


@pytest.mark.parametrize("failures", [40, nightly(400)])
def test_failed_generation_ends_only_its_utterance(failures: int, seed: int, scaled: Callable[..., int]) -> None:
    """With an error of the pipeline or an unexpected one; others on all sockets go on."""
    for number in range(scaled(failures)):
        run(_fail_one(random.Random(seed + number)))


async def _fail_one(chance: random.Random) -> None:
    async with InProcessGateway(ToneScript(chunk_frames=chance.choice([1, 3])), slots=SPEAKERS) as gateway:
        sockets = [gateway.connect(f"k{n}") for n in range(SPEAKERS)]
        for number, socket in enumerate(sockets):
            say(socket, "a", TEXT * 2 + str(number), pacing=chance.choice(["playback", "none"]))
        await settle()
        failing = chance.randrange(SPEAKERS)
        speech = gateway.synthesizer.speeches[failing]
        say(sockets[failing], "b", TEXT)
        if not speech.finish_reason:
            await asyncio.sleep(chance.uniform(0, 2))
        speech.lose(chance.choice(FAILURES))
        await asyncio.sleep(60)
        for number, socket in enumerate(sockets):
            _check(socket, TEXT * 2 + str(number), may_fail=number == failing)
        assert "b" in {done["utterance"] for done in sockets[failing].of("done")}, "the socket is still served"


def _check(socket: FakeSocket, text: str, *, may_fail: bool) -> None:
    errors = [(error["code"], error["utterance"]) for error in socket.of("error")]
    if may_fail and errors:
        assert errors == [("generation_failed", "a")]
        return
    assert errors == []
    started = next(m for m in socket.of("started") if m["utterance"] == "a")
    assert b"".join(payload for _, payload in socket.audio(started["number"])) == s16le(tone_pcm(text))
