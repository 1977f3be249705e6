"""A client process of a load test: its virtual users share one event loop.

It reads its part of the step as a line of JSON from standard input, writes READY, and reads the time to begin. Results
go to standard output as lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from .plan import BehaviourShares, LoadStep
from .results import Outcome, UtteranceResult
from .targets import opener
from .targets.connection import TargetConnection, TargetOptions
from .virtual_user import VirtualUser

READY = b"ready\n"
_RETRY_S = 0.5
"""Pause of a stream after an utterance that was refused or failed."""
_LAG_PERIOD_S = 0.02


def main() -> int:
    import uvloop

    step = decode_step(sys.stdin.readline())
    open_connection = opener(step.target)
    print(READY.decode(), end="", flush=True)
    uvloop.run(_run(step, open_connection, float(sys.stdin.readline())))
    return 0


def encode_step(step: LoadStep) -> str:
    return json.dumps(asdict(step))


def decode_step(line: str) -> LoadStep:
    fields: dict[str, Any] = json.loads(line)
    nested = {"options": TargetOptions(**fields["options"]), "shares": BehaviourShares(**fields["shares"])}
    return LoadStep(**{**fields, **nested})


async def _run(
    step: LoadStep, open_connection: Callable[[TargetOptions], Awaitable[TargetConnection]], begin_s: float
) -> None:
    """`begin_s` is a time of time.monotonic, which all processes of a machine share."""
    loop = asyncio.get_running_loop()
    lags_ms: list[float] = []
    measuring = loop.create_task(_measure_lag(lags_ms))
    begin_s += loop.time() - time.monotonic()
    await run_virtual_users(step, begin_s, lambda: open_connection(step.options), _report, time.monotonic)
    measuring.cancel()
    print(json.dumps({"lags_ms": lags_ms, "cpu_s": time.process_time()}), flush=True)


async def _measure_lag(lags_ms: list[float]) -> None:
    """Measures the lag of this process's event loop: its other figures are wrong by as much."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        lags_ms.append(round(1000 * (loop.time() - due_s), 2))


def _report(result: UtteranceResult) -> None:
    print(result.to_json(), flush=True)


async def run_virtual_users(
    step: LoadStep,
    begin_s: float,
    open_connection: Callable[[], Awaitable[TargetConnection]],
    report: Callable[[UtteranceResult], None],
    clock: Callable[[], float] | None = None,
) -> None:
    """Runs this process's part of `step` from `begin_s` on the loop's clock; `report` gets each result.

    `clock`: see VirtualUser. Cancelling it closes every connection.
    """

    async def speak_once(stream: int, start_s: float) -> None:
        report(await VirtualUser(step.utterance(stream, 0, begin_s + start_s), open_connection, clock).run())

    async def speak_repeatedly(stream: int, start_s: float) -> None:
        loop = asyncio.get_running_loop()
        next_s = begin_s + start_s
        for index in range(step.utterances_per_stream):
            result = await VirtualUser(step.utterance(stream, index, next_s), open_connection, clock).run()
            report(result)
            # Audio that was sent ahead is played before the next utterance; without pacing nothing is played.
            plays = result.outcome is Outcome.DONE and step.options.paced
            unplayed_s = max(0.0, result.audio_s - result.receiving_s) if plays else 0.0
            pause_s = unplayed_s if result.outcome in (Outcome.DONE, Outcome.INTERRUPTED) else _RETRY_S
            next_s = loop.time() + pause_s
            if next_s >= begin_s + step.seconds:
                return

    speak = speak_once if step.rate_per_s else speak_repeatedly
    async with asyncio.TaskGroup() as group:
        for stream, start_s in step.arrivals_s():
            group.create_task(speak(stream, start_s))


if __name__ == "__main__":
    sys.exit(main())
