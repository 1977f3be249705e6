"""Several processes' metrics as one gateway's."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from voxgate.gateway.observability.merged_metrics import MergedMetrics, WorkerMetrics, additive_samples
from voxgate.gateway.observability.metrics import Metrics


def values(text: bytes) -> dict[tuple[str, str], float]:
    """By a sample's name and the values of its labels."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def worker(sessions: int, lag_s: float) -> Metrics:
    metrics = Metrics(None, ("native",))
    for _ in range(sessions):
        metrics.session_opened("native", "ada")
    metrics.error_sent("native", "rate_limited")
    metrics.observe_lag(lag_s)
    return metrics


def test_counters_and_histograms_add_up_and_gauges_do_not() -> None:
    own = Metrics(None, ("native",))
    own.engine_ready()
    others = [additive_samples(worker(2, 0.0001).registry), additive_samples(worker(3, 0.3).registry)]
    seen = values(MergedMetrics().exposition(own.registry, others))
    assert seen["voxgate_sessions_total", "native"] == 5
    assert seen["voxgate_engine_starts_total", ""] == 1
    assert seen["voxgate_event_loop_lag_seconds_count", ""] == 2
    assert seen["voxgate_event_loop_lag_seconds_bucket", "0.001"] == 1
    assert seen["voxgate_errors_total", "rate_limited,native"] == 2, "a series that only workers have"
    assert seen["voxgate_characters_total", "ada"] == 0
    alone = values(own.exposition())
    assert seen["process_start_time_seconds", ""] == alone["process_start_time_seconds", ""]
    assert seen["process_resident_memory_bytes", ""] > 2 * alone["process_resident_memory_bytes", ""]


def test_counts_of_an_ended_process_remain() -> None:
    own, totals = Metrics(None, ("native",)), MergedMetrics()
    totals.keep(additive_samples(worker(2, 0.1).registry))
    totals.keep(additive_samples(worker(1, 0.1).registry))
    seen = values(totals.exposition(own.registry, [additive_samples(worker(4, 0.1).registry)]))
    assert seen["voxgate_sessions_total", "native"] == 7
    assert seen["process_open_fds", ""] < 3 * values(own.exposition())["process_open_fds", ""]


def test_packed_counts_are_unpacked_unchanged() -> None:
    counts = WorkerMetrics(additive_samples(worker(1, 0.1).registry), {"native": 3}, [0.25, 0.5])
    assert WorkerMetrics.unpack(counts.pack()) == counts
