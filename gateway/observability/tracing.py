"""OpenTelemetry traces: one per utterance, with its phases as spans (docs/observability.md).

Disabled unless an OTLP endpoint is configured in OpenTelemetry's environment variables. Spans are written at the end of
an utterance from recorded times; a thread of the SDK sends them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .events import DONE, INTERRUPTED, Observer, UtteranceRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def tracing_from(environ: Mapping[str, str], clock: Callable[[], float]) -> Tracing | None:
    """Tracing to the endpoint in `environ`; None without one. `clock` is the event loop's, in seconds.

    Honours OTEL_SDK_DISABLED, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and the OTEL_EXPORTER_OTLP_ family; traces
    go over HTTP. What is sampled, and how spans are batched, is set by the SDK's variables too.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(environ.get(name) for name in _ENDPOINTS):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME has precedence over this name.
    provider = TracerProvider(resource=Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else _SERVICE))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider, clock)


_SERVICE = {"service.name": "voxgate"}


class Tracing(Observer):
    """Writes the spans of docs/observability.md at the end of each utterance."""

    def __init__(self, provider: TracerProvider, clock: Callable[[], float]) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("voxgate")
        self._clock = clock

    def utterance_ended(self, record: UtteranceRecord) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        now_s = self._clock()
        epoch_s = time.time() - now_s

        def wall_ns(at_s: float) -> int:
            return int((epoch_s + at_s) * 1e9)

        attributes: dict[str, str | int] = {
            "voxgate.utterance": record.id,
            "voxgate.protocol": record.protocol,
            "voxgate.outcome": record.outcome,
            "voxgate.voice": record.voice,
            "voxgate.codec": record.codec,
            "voxgate.characters": record.characters,
            "voxgate.audio_ms": round(1000 * record.audio_s),
            "voxgate.underruns": record.underruns,
        }
        if record.key:
            attributes["voxgate.key"] = record.key
        carrier = {} if record.traceparent is None else {"traceparent": record.traceparent}
        parent = TraceContextTextMapPropagator().extract(carrier)
        begun_ns = wall_ns(record.started_s)
        whole = self._tracer.start_span("utterance", parent, attributes=attributes, start_time=begun_ns)
        context = set_span_in_context(whole)
        for name, begin_s, end_s in phases(record, now_s):
            span = self._tracer.start_span(name, context, start_time=wall_ns(begin_s))
            span.end(wall_ns(end_s))
        if record.outcome not in (DONE, INTERRUPTED):
            whole.set_status(Status(StatusCode.ERROR, record.outcome))
        whole.end(wall_ns(now_s))

    def close(self) -> None:
        """Sends pending spans; blocks at most for the exporter's timeout."""
        self._provider.shutdown()


def phases(record: UtteranceRecord, now_s: float) -> list[tuple[str, float, float]]:
    """Phases of an utterance that were reached, as (name, begin, end) in seconds; the last may be cut at `now_s`.

    client: waiting for the first text. queue: waiting for a slot. text: until the first settled token. talker: until
    its first frame. codec: until the first samples. packet: until the first packet was sent. speech: from there to the
    end.
    """
    found: list[tuple[str, float, float]] = []
    if record.queued_s is None:
        return [("client", record.started_s, now_s)]
    found.append(("client", record.started_s, record.queued_s))
    if record.granted_s is None:
        return [*found, ("queue", record.queued_s, now_s)]
    found.append(("queue", record.queued_s, record.granted_s))
    reached = record.milestones
    begin_s = record.granted_s
    for name, end_s in (
        ("text", reached.first_token_s),
        ("talker", reached.first_frame_s),
        ("codec", reached.first_pcm_s),
        ("packet", record.first_packet_s),
    ):
        if end_s is None:
            found.append((name, begin_s, max(begin_s, now_s)))
            return found
        found.append((name, begin_s, max(begin_s, end_s)))
        begin_s = max(begin_s, end_s)
    found.append(("speech", begin_s, max(begin_s, now_s)))
    return found
