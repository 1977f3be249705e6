from __future__ import annotations

import asyncio
from collections.abc import Callable

from fakes.bench import Bench, say
from fakes.sockets import FakeSocket
from fakes.tone import Script
from fakes.virtual_time import run

from ..card import Trial, row

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
    ends: dict[str, Callable[[Bench, FakeSocket], object]] = {
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
            while not run(_scene(end, pacing, moment)):
                moment += 1
                assert moment < MOMENTS_AT_MOST
            assert moment > 10, f"{name}: the utterances were not under way"
            moments += moment
    trial.note("moments", moments)
    trial.note("clean", "100 %")  # an unclean one raises


async def _scene(end: Callable[[Bench, FakeSocket], object], pacing: str, moment: int) -> bool:
    """End it then. Returns whether everything had been said before."""
    async with Bench(
        Script(close_s=0.0 if pacing == "none" else 0.02, frame_s=0.0 if pacing == "none" else 0.01), slots=1
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
