from __future__ import annotations

from ..card import Trial, row
from ..chorus import UNLIMITED, chorus
from ..gateways import tone_gateway


@row(
    "C5",
    "event-loop lag of the gateway under C1",
    "p99 ≤ 5 ms, max ≤ 50 ms",
    nightly_s=35,
    timed=True,
)
async def loop_lag(trial: Trial) -> None:
    count, seconds = trial.size(500), trial.size(20, least=5)
    async with tone_gateway(slots=count, **UNLIMITED) as served:
        await chorus(served.port, max(1, count // 10), 2)
        await served.ask("watch_lag")
        sung = await chorus(served.port, count, seconds)
        lag_ms = await served.ask("lag")
        trial.note("sessions", count)
        trial.most("lag p99 ms", lag_ms["p99"], 5, timed=True)
        trial.most("lag max ms", lag_ms["max"], 50, timed=True)
        trial.equal("mismatches", len(sung.mismatches), 0)
