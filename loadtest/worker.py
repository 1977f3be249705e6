"""The listeners of one process, all in one event loop."""
# TODO-DOC A process of listeners: its load as JSON on standard input, samples as JSON lines on standard output. It
# TODO-DOC says that it is ready, and begins at the time that it is told then.

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

_MOST_TURNS = 10_000
_RETRY_S = 0.5
"""A stream that was refused, or failed, tries again after so long."""


async def run_virtual_users(
    load: LoadStep,
    begin_s: float,
    open_connection: Callable[[], Awaitable[TargetConnection]],
    report: Callable[[UtteranceResult], None],
    clock: Callable[[], float] | None = None,
) -> None:
    """Run this process's part of `load` from `begin_s` (the loop's clock) on; every turn's sample goes to `report`.

    `clock`: see VirtualUser.
    """

    async def one_turn(stream: int, at_s: float) -> None:
        report(await VirtualUser(load.turn(stream, 0, begin_s + at_s), open_connection, clock).run())

    async def stream_of_turns(stream: int, at_s: float) -> None:
        loop = asyncio.get_running_loop()
        next_s = begin_s + at_s
        for index in range(_MOST_TURNS):
            sample = await VirtualUser(load.turn(stream, index, next_s), open_connection, clock).run()
            report(sample)
            # What was sent ahead is played out before the listener's next turn; a file is not played.
            plays = sample.outcome is Outcome.DONE and load.options.paced
            lead_s = max(0.0, sample.audio_s - sample.playing_s) if plays else 0.0
            pause_s = lead_s if sample.outcome in (Outcome.DONE, Outcome.INTERRUPTED) else _RETRY_S
            next_s = loop.time() + pause_s
            if next_s >= begin_s + load.seconds:
                return

    talk = one_turn if load.rate_per_s else stream_of_turns
    async with asyncio.TaskGroup() as crowd:
        for stream, at_s in load.arrivals_s():
            crowd.create_task(talk(stream, at_s))


READY = b"ready\n"
_LAG_PERIOD_S = 0.02


def encode(load: LoadStep) -> str:
    return json.dumps(asdict(load))


def decode(line: str) -> LoadStep:
    fields: dict[str, Any] = json.loads(line)
    nested = {"options": TargetOptions(**fields["options"]), "shares": BehaviourShares(**fields["shares"])}
    return LoadStep(**{**fields, **nested})


async def _run(
    load: LoadStep, open_connection: Callable[[TargetOptions], Awaitable[TargetConnection]], begin_s: float
) -> None:
    """`begin_s` is on time.monotonic, which all processes of a machine share."""
    loop = asyncio.get_running_loop()
    lags_ms: list[float] = []
    probing = loop.create_task(_probe(lags_ms))
    begin_s += loop.time() - time.monotonic()
    await run_virtual_users(load, begin_s, lambda: open_connection(load.options), _report, time.monotonic)
    probing.cancel()
    used = time.process_time()
    print(json.dumps({"lags_ms": lags_ms, "cpu_s": used}), flush=True)


async def _probe(lags_ms: list[float]) -> None:
    """How late this process's own event loop is: measured times are worth nothing when it is."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        lags_ms.append(round(1000 * (loop.time() - due_s), 2))


def _report(sample: UtteranceResult) -> None:
    print(sample.to_json(), flush=True)


def main() -> int:
    import uvloop

    load = decode(sys.stdin.readline())
    open_connection = opener(load.target)
    print(READY.decode(), end="", flush=True)
    uvloop.run(_run(load, open_connection, float(sys.stdin.readline())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
