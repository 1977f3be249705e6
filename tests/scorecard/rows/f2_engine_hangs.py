from __future__ import annotations

import signal

from ..card import Trial, row
from .f1_engine_killed import HANG_S, lose_engine


@row(
    "F2",
    "engine hangs (SIGSTOP)",
    "watchdog: as F1 after 5 s without a step",
    nightly_s=50,
    timed=True,
    voice=True,
)
async def engine_hangs(trial: Trial) -> None:
    await lose_engine(trial, signal.SIGSTOP, kills=1, error_ms=1000 * HANG_S + 1000)
