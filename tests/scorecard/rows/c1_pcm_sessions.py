from __future__ import annotations

from ..card import Trial, row
from ..chorus import UNLIMITED, chorus
from ..gateways import tone_gateway


@row(
    "C1",
    "PCM sessions, 80 ms messages, client and gateway on the same 2 cores",
    "500, gap p99 ≤ 90 ms, 0 underruns at a 200 ms buffer",
    light_s=25,
    nightly_s=60,
    timed=True,
)
async def pcm_sessions(trial: Trial) -> None:
    await sessions(trial, trial.size(500, light=100), "pcm", gap_ms=90)


async def sessions(trial: Trial, count: int, codec: str, gap_ms: float) -> None:
    """Also C2's, and C5's: the loop's lag is measured meanwhile."""
    seconds = trial.size(40, light=10, least=5)
    async with tone_gateway(slots=count, **UNLIMITED) as served:
        await chorus(served.port, max(1, count // 10), 2, codec=codec)  # warm
        await served.ask("watch_lag")
        cpu_s = served.cpu_s
        sung = await chorus(served.port, count, seconds, codec=codec)
        trial.note("sessions", count)
        trial.most("gap p99 ms", sung.gap_p99_ms, gap_ms, timed=True)
        trial.most("underruns", sung.underruns(), 0, timed=True)
        trial.equal("mismatches", len(sung.mismatches), 0)
        trial.equal("unfinished", sung.unfinished, 0)
        trial.note("gateway's cores", (served.cpu_s - cpu_s) / seconds)
        trial.note("loop lag ms", (await served.ask("lag"))["p99"])
        trial.equal("complaints", len(served.complaints), 0)
