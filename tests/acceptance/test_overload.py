from __future__ import annotations

import asyncio
import time
from pathlib import Path

from .scorecard.card import Tier, Trial, row
from .testbed.expected_audio import ReceivedUtterance, mismatches, percentile
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, chorus, text_of
from .testbed.open_loop import OfferedLoad, Phase, arrive, saturated_per_s
from .testbed.overload_plot import draw
from .testbed.raw_websocket import RawClient, clients

LEAD_MS, GRACE_MS = 400, 3000
WATCHED_S = 12.0
LONG_S = 60


@row(
    "C3",
    "half of the readers stall",
    "others' gap p99 ≤ 1.2 × without them; each stalled one cut within lead + 3 s; ≤ 300 KiB each",
    nightly_s=55,
    timed=True,
)
async def stalled_readers(trial: Trial) -> None:
    count = trial.size(250, least=4)
    seconds = WATCHED_S + 4
    async with tone_gateway(slots=4 * count, **UNLIMITED) as served:
        await chorus(served.port, max(1, count // 10), 2)
        alone = await chorus(served.port, count, seconds)
        stalling, others = await clients(served.port, count), await clients(served.port, count)
        before_bytes = served.memory_bytes
        watching = asyncio.create_task(_stall(served, stalling, len(others)))
        disturbed = await chorus(served.port, count, seconds, listeners=others)
        cut_ms, left, peak_bytes = await watching
        trial.note("stalled readers", count)
        trial.note("gap p99 alone ms", alone.gap_p99_ms)
        trial.most("gap p99 ratio", disturbed.gap_p99_ms / alone.gap_p99_ms, 1.2, timed=True)
        trial.equal("never cut", left, 0)
        trial.most("the last cut after ms", cut_ms, LEAD_MS + GRACE_MS, timed=True)
        # What the others take is in it too: it is an upper bound.
        trial.most("KiB each", (peak_bytes - before_bytes) / count / 1024, 300)
        trial.equal("mismatches", len(disturbed.mismatches), 0)
        trial.most("underruns of the others", disturbed.underruns(), 0, timed=True)
        trial.note("slots free again after ms", 1000 * await served.until_idle(90))
        trial.equal("complaints", len(served.complaints), 0)


async def _stall(served: GatewayProcess, stalling: list[RawClient], others: int) -> tuple[float, int, int]:
    """All listen for a second, then read no more. Returns when the last was cut, how many never, the most memory."""
    for number, client in enumerate(stalling):
        client.say(text_of(LONG_S, number % 4))
    await asyncio.sleep(1)
    for client in stalling:
        client.transport.pause_reading()
    loop = asyncio.get_running_loop()
    began_s, left, peak_bytes = loop.time(), len(stalling), 0
    # Who does not read does not see the end of the connection either, so the gateway is asked.
    while left > 0 and loop.time() - began_s < WATCHED_S:
        await asyncio.sleep(0.1)
        peak_bytes = max(peak_bytes, served.memory_bytes)
        left = (await served.get("/v1/limits"))[1]["sockets"]["open"] - others
    cut_ms = 1000 * (loop.time() - began_s)
    for client in stalling:
        client.abort()
    return cut_ms, left, peak_bytes


SPEECH_S = 4.0
QUEUE_WAIT_MS = 1000
NORMAL_MS = 500
"""An utterance is served normally when its first audio comes within this time."""
IMAGE = Path(__file__).parents[2] / "docs" / "images" / "overload.svg"


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
        _check_overload(trial, arrivals, capacity_per_s)
        trial.equal("complaints", len(served.complaints), 0)
    if trial.tier is not Tier.LIGHT and trial.scale >= 1:
        IMAGE.write_text(draw(arrivals, capacity_per_s, NORMAL_MS), "utf-8")


def _check_overload(trial: Trial, arrivals: OfferedLoad, capacity_per_s: float) -> None:
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


def _typed(refused: ReceivedUtterance) -> bool:
    return refused.outcome == "at_capacity" and refused.end["retryable"] and refused.end["retry_after_ms"] > 0


def _late_ms(refused: ReceivedUtterance) -> float:
    """A refusal comes at once or, for one that had a place in the queue, when its wait is over."""
    assert refused.over_s is not None
    after_ms = 1000 * (refused.over_s - refused.asked_s)
    return after_ms if after_ms < QUEUE_WAIT_MS / 2 else after_ms - QUEUE_WAIT_MS


def _abnormal_s(arrivals: OfferedLoad, end_s: float, last_s: float) -> float:
    """How long after the storm's end somebody who came then was still refused or kept waiting."""
    late = [arrivals.at_s(one) for one in arrivals.within(end_s, last_s) if one.first_audio_ms > NORMAL_MS]
    return max(late, default=end_s) - end_s


PAUSE_S = 0.02
CODECS = ("pcm", "opus")


@row(
    "C7",
    "barge-in at random moments",
    "nothing of that utterance sent after the answer; slot free ≤ 100 ms",
    light_s=6,
    nightly_s=30,
    timed=True,
)
async def barge_in(trial: Trial) -> None:
    at_once, rounds = trial.size(40, light=20), trial.size(10, light=2)
    async with tone_gateway(slots=at_once, **UNLIMITED) as served:
        listeners = await clients(served.port, at_once)
        asked: dict[int, float] = {}
        answers_ms: list[float] = []
        for turn in range(rounds):
            bouts = (_interrupt(client, turn, n, asked, answers_ms) for n, client in enumerate(listeners))
            await asyncio.gather(*bouts)
        freed_ms = await _freed_ms(served, asked)
        heard = [one for client in listeners for one in client.heard.values()]
        trial.note("interrupts", len(asked))
        trial.equal("interrupted", sum(one.outcome == "interrupted" for one in heard), len(asked))
        trial.equal("with audio after it", sum("audio after" in one.disorder for one in heard), 0)
        trial.equal("texts that do not join", sum(_torn(one.end, one.text) for one in heard), 0)
        trial.equal("slots never freed", len(asked) - len(freed_ms), 0)
        trial.most("slot free after ms, max", max(freed_ms), 100, timed=True)
        trial.note("answer after ms, max", max(answers_ms))
        trial.equal("complaints", len(served.complaints), 0)


async def _interrupt(
    client: RawClient, turn: int, number: int, asked: dict[int, float], answers_ms: list[float]
) -> None:
    seed = turn * 1000 + number
    heard = client.say(text_of(20, number % 4), name=f"u{turn}", seed=seed, codec=CODECS[number % 2])
    # From before the first audio to well into the speech, each at its own moment.
    await asyncio.sleep(PAUSE_S * ((number * 7 + turn * 3) % 60))
    asked[seed] = time.monotonic()  # the loop's own clock is as old as its turn
    client.send(type="interrupt", utterance=f"u{turn}")
    await heard.ended(10)
    answers_ms.append(1000 * (time.monotonic() - asked[seed]))
    await asyncio.sleep(0.5)  # for what must not come


async def _freed_ms(served: GatewayProcess, asked: dict[int, float]) -> list[float]:
    """From each interrupt to the talker's slot being free; both processes read the same clock."""
    await served.until_idle()
    freed = dict(map(tuple, await served.ask("freed")))
    return [1000 * (freed[seed] - at_s) for seed, at_s in asked.items() if seed in freed]


def _torn(answer: dict[str, str], text: str) -> bool:
    return answer.get("text_spoken", "") + answer.get("text_remaining", "") != text
