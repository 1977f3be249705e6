from __future__ import annotations

from pathlib import Path

from ..card import Tier, Trial, row
from ..chorus import UNLIMITED, chorus
from ..gateways import tone_gateway
from ..oracle import Heard, mismatches, percentile
from ..overload import Arrivals, Phase, arrive, saturated_per_s
from ..overload_plot import draw
from ..wire import clients

SPEECH_S = 4.0
QUEUE_WAIT_MS = 1000
NORMAL_MS = 500
"""An utterance is served normally when its first audio comes within this time."""
IMAGE = Path(__file__).parents[3] / "docs" / "images" / "overload.svg"


@row(
    "C4",
    "overload 4 ×, open loop",
    "goodput ≥ 95 % of capacity, 0 underruns in admitted speech, refusals typed and ≤ 50 ms, normal again ≤ 5 s",
    nightly_s=115,
    timed=True,
)
async def overload(trial: Trial) -> None:
    slots = trial.size(60, least=6)
    calm_s, storm_s = trial.size(15, least=6), trial.size(30, least=8)
    settings = UNLIMITED | {"queue_length": slots, "queue_wait_ms": QUEUE_WAIT_MS}
    async with tone_gateway(slots=slots, **settings) as served:
        await chorus(served.port, slots, 2)
        listeners = await clients(served.port, 8 * slots)
        capacity_per_s = await saturated_per_s(listeners[: 2 * slots], SPEECH_S, 2 * calm_s)
        phases = [
            Phase(calm_s, capacity_per_s / 2),
            Phase(storm_s, capacity_per_s * 4),
            Phase(calm_s, capacity_per_s / 2),
        ]
        arrivals = await arrive(served.port, phases, SPEECH_S, trial.seed, listeners)
        _judge(trial, arrivals, capacity_per_s)
        trial.equal("complaints", len(served.complaints), 0)
    if trial.tier is not Tier.LIGHT and trial.scale >= 1:
        IMAGE.write_text(draw(arrivals, capacity_per_s, NORMAL_MS), "utf-8")


def _judge(trial: Trial, arrivals: Arrivals, capacity_per_s: float) -> None:
    _, begin_s, end_s, last_s = arrivals.bounds_s
    storm = arrivals.within(begin_s, end_s)
    admitted = [one for one in arrivals.heard if one.started_s is not None]
    refused = [one for one in arrivals.heard if one.started_s is None]
    # Utterances of one length: those that ended within the storm, after its first had time to.
    from_s, to_s = arrivals.began_s + begin_s + SPEECH_S, arrivals.began_s + end_s
    finished = [one for one in admitted if one.over_s is not None and from_s <= one.over_s < to_s]
    trial.note("capacity, utterances a second", capacity_per_s)
    trial.note("asked for in the storm", len(storm))
    trial.note("refused", len(refused))
    trial.least("goodput of capacity", len(finished) / (to_s - from_s) / capacity_per_s, 0.95, timed=True)
    trial.most("underruns", sum(one.playback.underruns(200) for one in admitted), 0, timed=True)
    trial.equal("refusals of another kind", sum(not _typed(one) for one in refused), 0)
    trial.most("refusal ms beyond the wait, max", max(map(_late_ms, refused), default=0), 50, timed=True)
    trial.note(
        "first audio p99 ms in the storm", percentile([one.first_audio_ms for one in storm if one in admitted], 99)
    )
    trial.most("normal again after s", _abnormal_s(arrivals, end_s, last_s), 5, timed=True)
    trial.equal("mismatches", len(mismatches(admitted)), 0)
    trial.equal("admitted and not finished", sum(one.outcome != "done" for one in admitted), 0)


def _typed(refused: Heard) -> bool:
    return refused.outcome == "at_capacity" and refused.end["retryable"] and refused.end["retry_after_ms"] > 0


def _late_ms(refused: Heard) -> float:
    """A refusal comes at once or, for one that had a place in the queue, when its wait is over."""
    assert refused.over_s is not None
    after_ms = 1000 * (refused.over_s - refused.asked_s)
    return after_ms if after_ms < QUEUE_WAIT_MS / 2 else after_ms - QUEUE_WAIT_MS


def _abnormal_s(arrivals: Arrivals, end_s: float, last_s: float) -> float:
    """How long after the storm's end somebody who came then was still refused or kept waiting."""
    late = [arrivals.at_s(one) for one in arrivals.within(end_s, last_s) if one.first_audio_ms > NORMAL_MS]
    return max(late, default=end_s) - end_s
