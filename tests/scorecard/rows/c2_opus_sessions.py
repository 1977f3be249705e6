from __future__ import annotations

from ..card import Trial, row
from .c1_pcm_sessions import sessions


@row("C2", "the same with real Opus", "150, gap p99 ≤ 95 ms", nightly_s=60, timed=True)
async def opus_sessions(trial: Trial) -> None:
    await sessions(trial, trial.size(150), "opus", gap_ms=95)
