"""The listeners of one process, all in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .listener import Listener
from .plan import Load
from .sample import Outcome, Sample
from .targets.line import Line

_MOST_TURNS = 10_000
_RETRY_S = 0.5
"""A stream that was refused, or failed, tries again after so long."""


async def run_crowd(
    load: Load,
    begin_s: float,
    open_line: Callable[[], Awaitable[Line]],
    report: Callable[[Sample], None],
    clock: Callable[[], float] | None = None,
) -> None:
    """Run this process's part of `load` from `begin_s` (the loop's clock) on; every turn's sample goes to `report`.

    `clock`: see Listener.
    """

    async def one_turn(stream: int, at_s: float) -> None:
        report(await Listener(load.turn(stream, 0, begin_s + at_s), open_line, clock).run())

    async def stream_of_turns(stream: int, at_s: float) -> None:
        loop = asyncio.get_running_loop()
        next_s = begin_s + at_s
        for index in range(_MOST_TURNS):
            sample = await Listener(load.turn(stream, index, next_s), open_line, clock).run()
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
