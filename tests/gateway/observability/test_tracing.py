"""Spans of an utterance: where its time went, from the first text to the first packet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.gateway.records import RECORD as PLAIN
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from voxgate.gateway.observability.tracing import Tracing, phases, tracing_from
from voxgate.pipeline.interface import Milestones

RECORD = replace(PLAIN, milestones=Milestones(1.55, 1.6, 1.7))


def spans(record=RECORD, now_s: float = 4.0) -> dict[str, ReadableSpan]:
    provider, memory = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    Tracing(provider, lambda: now_s).utterance_ended(record)
    return {span.name: span for span in memory.get_finished_spans()}


def length_s(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_the_phases_of_an_utterance_make_up_its_span() -> None:
    seen = spans()
    whole = seen.pop("utterance")
    assert {name: pytest.approx(length_s(span), abs=1e-6) for name, span in seen.items()} == {
        "client": 0.25,
        "queue": 0.25,
        "text": 0.05,
        "talker": 0.05,
        "codec": 0.1,
        "packet": 0.05,
        "speech": 2.25,
    }
    assert length_s(whole) == pytest.approx(3.0)
    assert whole.context is not None
    assert all(span.parent is not None and span.parent.span_id == whole.context.span_id for span in seen.values())
    assert whole.attributes is not None
    assert whole.attributes["voxgate.utterance"] == "r-1.1"
    assert whole.attributes["voxgate.key"] == "team-a"


def test_utterance_is_a_part_of_the_clients_trace() -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    whole = spans(replace(RECORD, traceparent=f"00-{trace}-{span}-01"))["utterance"]
    assert whole.context is not None
    assert whole.parent is not None
    assert (whole.context.trace_id, whole.parent.span_id) == (int(trace, 16), int(span, 16))
    assert spans()["utterance"].parent is None
    assert spans(replace(RECORD, traceparent=f"00-{'0' * 32}-{span}-01"))["utterance"].parent is None


def test_interrupted_phase_is_the_last() -> None:
    failed = replace(RECORD, outcome="engine_lost", milestones=Milestones(1.55), first_packet_s=None)
    seen = spans(failed)
    assert list(seen) == ["client", "queue", "text", "talker", "utterance"]
    assert length_s(seen["talker"]) == pytest.approx(4.0 - 1.55)
    assert seen["utterance"].status.status_code is StatusCode.ERROR
    assert seen["utterance"].status.description == "engine_lost"
    assert phases(replace(RECORD, granted_s=None), 4.0) == [("client", 1.0, 1.25), ("queue", 1.25, 4.0)]
    assert phases(replace(RECORD, queued_s=None, granted_s=None), 4.0) == [("client", 1.0, 4.0)]


def test_tracing_is_off_without_an_endpoint() -> None:
    assert tracing_from({}, lambda: 0.0) is None
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert tracing_from({**endpoint, "OTEL_SDK_DISABLED": "true"}, lambda: 0.0) is None
    tracing = tracing_from(endpoint, lambda: 0.0)
    assert tracing is not None
    tracing.close()
