"""One row in a process of its own: `python -m acceptance.scorecard.one ID OPTIONS-AS-JSON`; its record goes to stdout."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import logging
import sys
import time
import traceback
from dataclasses import asdict, dataclass

from .card import Row, Tier, Trial, all_rows
from .quiet import GATE_S, LATE_MS, lateness_p99_ms
from .record import Record, Verdict, commit


@dataclass(frozen=True)
class Options:
    """How rows are to be run."""

    tier: str
    seed: int
    scale: float = 1.0
    judge_time: bool = True
    """Pass the quiet gate first and count figures of time; without, rows are about correctness alone."""


def run(row: Row, options: Options) -> Record:
    """Measure a row in this process."""
    began, tier = time.time(), Tier(options.tier)
    gated = row.timed and options.judge_time
    late_ms = lateness_p99_ms(max(1.0, GATE_S * min(1.0, options.scale))) if gated else None
    trial = Trial(tier, options.seed, options.scale, options.judge_time)
    try:
        if inspect.iscoroutinefunction(row.measure):
            _run_async(row.measure(trial))
        else:
            row.measure(trial)
    except Exception as error:
        traceback.print_exc()
        trial.missed.append(f"{type(error).__name__}: {error}"[:500])
    verdict: Verdict = "red" if trial.missed else "green"
    if late_ms is not None and late_ms > LATE_MS:
        verdict = "void"
    return Record(
        row=row.id,
        verdict=verdict,
        figures=trial.figures,
        missed=trial.missed,
        commit=commit(),
        seed=options.seed,
        tier=options.tier,
        scale=options.scale,
        timed=options.judge_time or not row.timed,
        seconds=round(time.time() - began, 1),
        lateness_p99_ms=None if late_ms is None else round(late_ms, 2),
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
    )


def _run_async(measure) -> None:
    import uvloop

    # A full collection here would be taken for a pause of the gateway's; the young are collected as ever.
    gc.freeze()
    gc.set_threshold(700, 10, 100_000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure)


def main() -> None:
    logging.basicConfig(level=logging.CRITICAL)
    id, options = sys.argv[1], Options(**json.loads(sys.argv[2]))
    print(json.dumps(asdict(run(all_rows()[id], options))))


if __name__ == "__main__":
    main()
