"""Listeners for a measurement: `python -m voxgate.cli.listeners PLAN` plays a plan, as JSON, and prints what was heard.

A process of its own, so that many of them share the work and none slows the gateway's. The load is open: an utterance
starts when the plan says, whatever became of those before it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..client import AudioFormat, ClientError, Done, Session, connect
from ..client.events import Audio
from .playback import Playback

BUFFERS_MS = (0, 80, 200)
SESSIONS_AHEAD = 8
"""Open sockets that wait for their utterance: what is measured is speech, not shaking hands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`rate` utterances a second, on average, for `seconds`, of `frames` each; then all are heard to their end."""

    url: str
    text: str
    rate: float
    seconds: float
    frames: int
    seed: int
    pacing: str = "playback"
    steady: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """One utterance; times in seconds of the machine's clock. `error`: why there is no more."""

    began_s: float
    ended_s: float
    first_ms: float | None
    server_ms: float | None
    audio_s: float
    gap_ms: float
    underruns: dict[str, int]
    error: str | None


async def play(plan: Plan) -> list[Heard]:
    """Every utterance of the plan; refused ones and failed ones too."""
    chance = random.Random(plan.seed)
    idle: asyncio.Queue[tuple[Session, asyncio.Event]] = asyncio.Queue()
    keepers = [asyncio.create_task(_keep(plan.url, idle)) for _ in range(SESSIONS_AHEAD)]
    while idle.qsize() < SESSIONS_AHEAD:  # noqa: ASYNC110  # a queue tells of its first item only
        await asyncio.sleep(0.01)
    listening: set[asyncio.Task[None]] = set()
    heard: list[Heard] = []

    async def listen() -> None:
        session, left = await idle.get()
        keepers.append(asyncio.create_task(_keep(plan.url, idle)))
        try:
            heard.append(await _listen(session, plan, chance.getrandbits(48)))
        finally:
            left.set()

    due_s = time.monotonic()
    end_s = due_s + plan.seconds
    while due_s < end_s:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        listening.add(asyncio.create_task(listen()))
        due_s += 1 / plan.rate if plan.steady else chance.expovariate(plan.rate)
    await asyncio.wait(listening)
    for keeper in keepers:
        keeper.cancel()
    await asyncio.wait(keepers)
    return heard


async def _keep(url: str, idle: asyncio.Queue[tuple[Session, asyncio.Event]]) -> None:
    async with connect(url) as session:
        left = asyncio.Event()
        await idle.put((session, left))
        await left.wait()


async def _listen(session: Session, plan: Plan, seed: int) -> Heard:
    playback, first_ms, server_ms, error = Playback(24_000), None, None, None
    began_s = time.monotonic()
    try:
        async with session.utterance(
            format=AudioFormat(codec="pcm"),
            sampling={"max_frames": plan.frames},
            seed=seed,
            pacing="none" if plan.pacing == "none" else "playback",
        ) as utterance:
            began_s = time.monotonic()
            await utterance.send(plan.text)
            await utterance.end()
            async for event in utterance.events():
                if isinstance(event, Audio) and event.samples:
                    now = time.monotonic()
                    first_ms = 1000 * (now - began_s) if first_ms is None else first_ms
                    playback.arrive(now, event.pts, event.samples)
                elif isinstance(event, Done):
                    server_ms = event.ttfa_ms
    except ClientError as refused:
        error = type(refused).__name__ + f": {refused}"
    return Heard(
        began_s,
        time.monotonic(),
        first_ms,
        server_ms,
        playback.audio_s,
        playback.longest_gap_ms,
        {str(ms): playback.underruns(ms) for ms in BUFFERS_MS},
        error,
    )


async def play_in_processes(plans: Sequence[Plan]) -> list[Heard]:
    """All plans at once, a process each."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", __spec__.name, json.dumps(asdict(plan)), stdout=asyncio.subprocess.PIPE
        )
        for plan in plans
    ]
    outputs = await asyncio.gather(*(process.communicate() for process in processes))
    return [Heard(**row) for output, _ in outputs for row in json.loads(output or b"[]")]


def main(argument: str) -> None:
    """Entry of the process."""
    import uvloop

    print(json.dumps([asdict(row) for row in uvloop.run(play(Plan(**json.loads(argument))))]))


if __name__ == "__main__":
    main(sys.argv[1])
