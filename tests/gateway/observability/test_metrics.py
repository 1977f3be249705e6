"""Prometheus metrics, and the lateness of the event loop in virtual time."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.gateway.records import RECORD, STATE
from fakes.virtual_time import VirtualTimeLoop, run
from prometheus_client.parser import text_string_to_metric_families
from voxgate.gateway.errors import Limit
from voxgate.gateway.observability.events import DONE, INTERRUPTED
from voxgate.gateway.observability.metrics import Metrics, watch_lag


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample as Prometheus would read it, by `name{label=value,...}`."""
    found = {}
    metrics.update_state()
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: STATE)


def test_utterance_is_counted_at_its_end(metrics: Metrics) -> None:
    metrics.utterance_ended(RECORD)
    seen = values(metrics)
    assert seen["voxgate_utterances_total{outcome=done,protocol=native}"] == 1
    assert seen["voxgate_ttfa_seconds_sum{protocol=native}"] == 0.5
    assert seen["voxgate_ttfa_seconds_bucket{le=0.5,protocol=native}"] == 1
    assert seen["voxgate_ttfa_seconds_bucket{le=0.3,protocol=native}"] == 0
    assert seen["voxgate_queue_wait_seconds_sum"] == 0.25
    assert seen["voxgate_underruns_total{protocol=native}"] == 2
    assert seen["voxgate_underrun_utterances_total{protocol=native}"] == 1
    assert seen["voxgate_underrun_seconds_total{protocol=native}"] == 0.3
    assert seen["voxgate_audio_bytes_total{codec=opus,protocol=native}"] == 8000
    assert seen["voxgate_characters_total{key=team-a}"] == 20
    assert seen["voxgate_audio_seconds_total{key=team-a}"] == 2.0


def test_series_exist_before_their_first_event() -> None:
    seen = values(Metrics(lambda: STATE, ("native", "deepgram")))
    assert seen["voxgate_utterances_total{outcome=failed,protocol=deepgram}"] == 0
    assert seen["voxgate_ttfa_seconds_count{protocol=native}"] == 0
    assert seen["voxgate_errors_total{code=at_capacity,protocol=native}"] == 0
    assert seen["voxgate_handshakes_refused_total{reason=draining}"] == 0


def test_every_error_counts_as_failed(metrics: Metrics) -> None:
    for outcome in (DONE, INTERRUPTED, "engine_lost", "client_gone"):
        metrics.utterance_ended(replace(RECORD, outcome=outcome, first_packet_s=None, granted_s=None))
    seen = values(metrics)
    assert seen["voxgate_utterances_total{outcome=failed,protocol=native}"] == 2
    assert "voxgate_ttfa_seconds_count{protocol=native}" not in seen
    assert seen["voxgate_queue_wait_seconds_count"] == 0


def test_gauges_are_computed_at_the_scrape() -> None:
    now = STATE
    metrics = Metrics(lambda: now)
    seen = values(metrics)
    assert (seen["voxgate_slots"], seen["voxgate_active_utterances"], seen["voxgate_queued_utterances"]) == (8, 2, 1)
    assert seen["voxgate_sockets{protocol=native}"] == 3
    assert seen["voxgate_load"] == 3 / 8
    assert seen["voxgate_engine_state{state=ready}"] == 1
    assert seen["voxgate_engine_state{state=dead}"] == 0
    assert seen["voxgate_lead_utterances{le=0.08}"] == 1
    assert seen["voxgate_lead_utterances{le=+Inf}"] == 3
    assert seen["voxgate_step_seconds_p90{batch=4,part=talker}"] == 0.02
    assert seen["voxgate_step_seconds_p50{batch=1,part=codec}"] == 0.004
    now = replace(STATE, active=8, queued=4, draining=True)
    seen = values(metrics)
    assert (seen["voxgate_load"], seen["voxgate_draining"]) == (1.5, 1)


def test_load_counts_sockets() -> None:
    assert replace(STATE, sockets={"native": 60, "http": 20}).load == 0.8


def test_refusals_and_errors_by_reason(metrics: Metrics) -> None:
    metrics.handshake_refused("at_capacity", "sockets")
    metrics.error_sent("native", "bad_message")
    metrics.error_sent("native", "at_capacity", "queue_wait")
    metrics.session_opened("native", "team-a")
    metrics.engine_ready()
    metrics.observe_lag(0.004)
    seen = values(metrics)
    assert seen["voxgate_handshakes_refused_total{reason=at_capacity}"] == 1
    assert seen["voxgate_errors_total{code=bad_message,protocol=native}"] == 1
    limits = {limit: seen[f"voxgate_limits_reached_total{{limit={limit}}}"] for limit in Limit}
    assert {limit for limit, count in limits.items() if count == 1} == {"sockets", "queue_wait"}
    assert sum(limits.values()) == 2
    assert seen["voxgate_sessions_total{protocol=native}"] == 1
    assert seen["voxgate_characters_total{key=team-a}"] == 0
    assert seen["voxgate_engine_starts_total"] == 1
    assert seen["voxgate_event_loop_lag_seconds_bucket{le=0.005}"] == 1


def test_every_metric_is_documented(metrics: Metrics) -> None:
    metrics.utterance_ended(RECORD)
    metrics.handshake_refused("x")
    metrics.error_sent("native", "x")
    metrics.session_opened("native", "team-a")
    metrics.update_state()
    page = Path(__file__).parents[3].joinpath("docs/observability.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(voxgate_\w+)`", page))
    exposed = set(re.findall(r"^# TYPE (voxgate_\w+) \w+", metrics.exposition().decode(), re.MULTILINE))
    assert exposed == documented


def test_reports_how_late_timers_run() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        seen: list[float] = []
        watching = loop.create_task(watch_lag(seen.append, 0.25))
        await asyncio.sleep(0.6)
        # A callback keeps the loop busy for 100 ms, past the third timer.
        loop._virtual.now_s += 0.25
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        watching.cancel()
        assert [round(lag_s, 3) for lag_s in seen] == [0.0, 0.0, 0.1]

    run(scene())
