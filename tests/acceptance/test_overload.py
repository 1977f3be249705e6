"""More load than the gateway carries, clients that do not read, and interruptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings

from .testbed.expected_audio import ReceivedUtterance, mismatches, percentile
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, run_listeners, speech_text
from .testbed.measuring import Figures, nightly
from .testbed.open_loop import OfferedLoad, Phase, offer_load, saturated_rate_per_s
from .testbed.overload_plot import draw_overload
from .testbed.paired_loop import PairedLoop, ProcessorTimeLoop, run
from .testbed.raw_websocket import RawClient, connect, connect_many, upgrade_request

BUILD = Path(__file__).parents[2] / "build"

# Stalled readers

SEND_AHEAD_MS, SLOW_CONSUMER_TIMEOUT_MS = 400, 3000
"""Defaults of the gateway."""
WATCHED_S = 12.0
LONG_S = 60
STALLED_KIB = 300


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet_machine")
async def test_stalled_readers_are_closed(scaled: Callable[..., int], figures: Figures) -> None:
    """Half of the clients stop reading: they are closed in time, and the others receive their speech as before."""
    count = scaled(250, least=4)
    seconds = WATCHED_S + 4
    async with tone_gateway(slots=4 * count, **UNLIMITED) as gateway:
        await run_listeners(gateway.port, max(1, count // 10), 2)
        alone = await run_listeners(gateway.port, count, seconds)
        stalling, others = await connect_many(gateway.port, count), await connect_many(gateway.port, count)
        before_bytes = gateway.memory_bytes
        stalled = asyncio.create_task(_stall(gateway, stalling, len(others)))
        disturbed = await run_listeners(gateway.port, count, seconds, clients=others)
        closed_ms, left, peak_bytes = await stalled
        assert left == 0, "connections that were never closed"
        assert disturbed.mismatches == []
        figures.note("stalled readers", count)
        figures.note("gap p99 alone ms", alone.gap_p99_ms)
        figures.time_at_most("gap p99 ratio", disturbed.gap_p99_ms / alone.gap_p99_ms, 1.2)
        figures.time_at_most("the last one closed after ms", closed_ms, SEND_AHEAD_MS + SLOW_CONSUMER_TIMEOUT_MS)
        # An upper bound: the memory of the listeners is included.
        figures.at_most("KiB per stalled reader", (peak_bytes - before_bytes) / count / 1024, STALLED_KIB)
        figures.time_at_most("underruns of the listeners", disturbed.underruns(), 0)
        figures.note("slots free after ms", 1000 * await gateway.until_idle())
        assert gateway.log_errors == []


async def _stall(gateway: GatewayProcess, clients: list[RawClient], others: int) -> tuple[float, int, int]:
    """Let the clients read for a second, then no more.

    Returns when the last was closed (ms), how many were not, and the peak memory (bytes).
    """
    for number, client in enumerate(clients):
        client.say(speech_text(LONG_S, number % 4))
    await asyncio.sleep(1)
    for client in clients:
        client.transport.pause_reading()
    loop = asyncio.get_running_loop()
    began_s, left, peak_bytes = loop.time(), len(clients), 0
    # A client that does not read does not see the end of its connection, so the gateway is asked.
    while left > 0 and loop.time() - began_s < WATCHED_S:
        await asyncio.sleep(0.1)
        peak_bytes = max(peak_bytes, gateway.memory_bytes)
        left = await gateway.open_sockets() - others
    closed_ms = 1000 * (loop.time() - began_s)
    for client in clients:
        client.abort()
    return closed_ms, left, peak_bytes


# Four times the capacity

SPEECH_S = 4.0
QUEUE_WAIT_MS = 1000
NORMAL_MS = 500
"""An utterance is served normally when its first audio comes within this time."""
GOODPUT = 0.95
REFUSAL_MS = 50
RECOVERY_S = 5
ATTEMPTS = 3
"""Processor time includes what a hypervisor takes, which comes once; a delay of the gateway comes in every run."""


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet_machine")
async def test_excess_load_is_refused(scaled: Callable[..., int], seed: int, figures: Figures) -> None:
    """At four times the capacity, admitted speech does not suffer and the rest gets typed refusals in time.

    Draws the run into build/overload.svg.
    """
    slots = scaled(60, least=6)
    async with tone_gateway(slots=slots, **_overload_settings(slots)) as gateway:
        await run_listeners(gateway.port, slots, 2)
        clients = await connect_many(gateway.port, 8 * slots)
        calm_s, storm_s = scaled(15, least=6), scaled(30, least=8)
        load, capacity_per_s = await _overload(lambda: connect(gateway.port), clients, calm_s, storm_s, seed)
        assert gateway.log_errors == []
    BUILD.mkdir(exist_ok=True)
    (BUILD / "overload.svg").write_text(draw_overload(load, capacity_per_s, NORMAL_MS), "utf-8")
    _check_overload(figures, load, capacity_per_s)


@pytest.mark.parametrize(("slots", "storm_s"), [(10, 24), nightly(40, 30)])
def test_excess_load_is_refused_in_processor_time(
    slots: int, storm_s: float, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """The same with gateway and clients in one loop, whose clock leaves out what other programs take.

    Its figures of time are judged on a busy machine too. They are upper bounds: clients and gateway take turns.
    """
    for _ in range(ATTEMPTS):
        load, capacity_per_s = run(_overload_in_process(slots, storm_s, seed), ProcessorTimeLoop)
        if _latest_refusal_ms(load) <= REFUSAL_MS:
            break
    _check_overload(Figures(record_property, judge_time=True), load, capacity_per_s)


async def _overload_in_process(slots: int, storm_s: float, seed: int) -> tuple[OfferedLoad, float]:
    settings = Settings(host="127.0.0.1", port=0, **_overload_settings(slots))
    gateway = Gateway(settings, ToneSynthesizer(slots=slots), PacketEncoder)
    await gateway.open()
    engine = asyncio.create_task(gateway.run_engine())
    try:
        await asyncio.sleep(1)
        clients = [await _connect_pair(gateway.port) for _ in range(8 * slots)]
        return await _overload(lambda: _connect_pair(gateway.port), clients, storm_s / 2, storm_s, seed)
    finally:
        engine.cancel()
        await asyncio.wait([engine])
        await gateway.close()


async def _connect_pair(port: int) -> RawClient:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PairedLoop)
    sock = loop.connect_pair(port, "127.0.0.1")
    _, client = await loop.create_connection(lambda: RawClient(upgrade_request()), sock=sock)
    assert await client.answered == 101
    return client


def _overload_settings(slots: int) -> dict[str, int]:
    return UNLIMITED | {"queue_length": slots, "queue_wait_ms": QUEUE_WAIT_MS}


async def _overload(
    connect: Callable[[], Awaitable[RawClient]],
    clients: list[RawClient],
    calm_s: float,
    storm_s: float,
    seed: int,
) -> tuple[OfferedLoad, float]:
    """Returns a load of half the capacity, then four times, then half of it again; and the capacity per second."""
    capacity_per_s = await saturated_rate_per_s(clients[: len(clients) // 4], SPEECH_S, 2 * calm_s)
    phases = [
        Phase(calm_s, capacity_per_s / 2),
        Phase(storm_s, capacity_per_s * 4),
        Phase(calm_s, capacity_per_s / 2),
    ]
    return await offer_load(connect, phases, SPEECH_S, seed, clients), capacity_per_s


def _check_overload(figures: Figures, load: OfferedLoad, capacity_per_s: float) -> None:
    _, begin_s, end_s, last_s = load.bounds_s
    storm = load.within(begin_s, end_s)
    admitted = [one for one in load.utterances if one.started_s is not None]
    refused = [one for one in load.utterances if one.started_s is None]
    # All utterances have one length; those counted ended within the storm, after its first ones had time to.
    from_s, to_s = load.began_s + begin_s + SPEECH_S, load.began_s + end_s
    finished = [one for one in admitted if one.over_s is not None and from_s <= one.over_s < to_s]
    assert mismatches(admitted) == []
    assert [one.outcome for one in admitted if one.outcome != "done"] == []
    assert [one.end for one in refused if not _is_typed(one)] == []
    figures.note("capacity, utterances per s", capacity_per_s)
    figures.note("asked for in the storm", len(storm))
    figures.note("refused", len(refused))
    figures.note(
        "first audio p99 ms in the storm", percentile([one.first_audio_ms for one in storm if one in admitted], 99)
    )
    figures.time_at_least("goodput relative to capacity", len(finished) / (to_s - from_s) / capacity_per_s, GOODPUT)
    figures.time_at_most("underruns", sum(one.playback.underruns(200) for one in admitted), 0)
    figures.time_at_most("refusal ms beyond the wait, max", _latest_refusal_ms(load), REFUSAL_MS)
    figures.time_at_most("normal again after s", _recovery_s(load, end_s, last_s), RECOVERY_S)


def _is_typed(refused: ReceivedUtterance) -> bool:
    return refused.outcome == "at_capacity" and refused.end["retryable"] and refused.end["retry_after_ms"] > 0


def _latest_refusal_ms(load: OfferedLoad) -> float:
    return max((_late_ms(one) for one in load.utterances if one.started_s is None), default=0.0)


def _late_ms(refused: ReceivedUtterance) -> float:
    """A refusal is due at once or, for an utterance that was queued, at the end of its wait."""
    assert refused.over_s is not None
    after_ms = 1000 * (refused.over_s - refused.asked_s)
    return after_ms if after_ms < QUEUE_WAIT_MS / 2 else after_ms - QUEUE_WAIT_MS


def _recovery_s(load: OfferedLoad, end_s: float, last_s: float) -> float:
    """Time from the end of the storm to the last utterance that was still refused or delayed."""
    late = [load.at_s(one) for one in load.within(end_s, last_s) if one.first_audio_ms > NORMAL_MS]
    return max(late, default=end_s) - end_s


# Interruptions

INTERRUPT_STEP_S = 0.02
CODECS = ("pcm", "opus")
AFTER_S = 0.5
"""How long audio that must not come is waited for."""
FREED_MS = 100


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(("clients", "rounds"), [(20, 2), nightly(40, 10)])
async def test_no_audio_after_interrupted(
    clients: int, rounds: int, scaled: Callable[..., int], figures: Figures
) -> None:
    count = scaled(clients)
    async with tone_gateway(slots=count, **UNLIMITED) as gateway:
        connected = await connect_many(gateway.port, count)
        interrupted_s: dict[int, float] = {}
        answers_ms: list[float] = []
        for turn in range(scaled(rounds)):
            interruptions = (
                _interrupt(client, turn, n, interrupted_s, answers_ms) for n, client in enumerate(connected)
            )
            await asyncio.gather(*interruptions)
        freed_ms = await _freed_ms(gateway, interrupted_s)
        received = [one for client in connected for one in client.received.values()]
        assert [one.outcome for one in received] == ["interrupted"] * len(interrupted_s)
        assert [one.disorder for one in received if one.disorder] == []
        assert [one.end for one in received if not _covers_text(one.end, one.text)] == []
        assert len(freed_ms) == len(interrupted_s), "a slot was not given back"
        assert gateway.log_errors == []
        figures.note("interruptions", len(interrupted_s))
        figures.time_at_most("slot free after ms, max", max(freed_ms), FREED_MS)
        figures.note("answer after ms, max", max(answers_ms))


async def _interrupt(
    client: RawClient, turn: int, number: int, interrupted_s: dict[int, float], answers_ms: list[float]
) -> None:
    """Interrupt a speech at a moment between before its first audio and well into it."""
    seed = turn * 1000 + number
    received = client.say(speech_text(20, number % 4), name=f"u{turn}", seed=seed, codec=CODECS[number % 2])
    await asyncio.sleep(INTERRUPT_STEP_S * ((number * 7 + turn * 3) % 60))
    interrupted_s[seed] = time.monotonic()  # the loop's clock stands still within a turn
    client.send(type="interrupt", utterance=f"u{turn}")
    await received.ended()
    answers_ms.append(1000 * (time.monotonic() - interrupted_s[seed]))
    await asyncio.sleep(AFTER_S)


async def _freed_ms(gateway: GatewayProcess, interrupted_s: dict[int, float]) -> list[float]:
    """Time from each interruption to the release of its slot; both processes read the same clock."""
    await gateway.until_idle()
    freed_s = dict(map(tuple, await gateway.ask("freed")))
    return [1000 * (freed_s[seed] - at_s) for seed, at_s in interrupted_s.items() if seed in freed_s]


def _covers_text(answer: dict[str, str], text: str) -> bool:
    return answer.get("text_spoken", "") + answer.get("text_remaining", "") == text
