"""Prometheus metrics of one gateway; docs/observability.md describes each of them.

Utterances are counted at their end; gauges are computed at the scrape. Nothing is counted per packet or text message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from voxgate.pipeline.errors import AtCapacity, EngineLost
from voxgate.pipeline.interface import EngineState

from ..errors import Draining, Limit
from .events import DETACHED, DONE, EXPIRED, INTERRUPTED, REFUSED, RESUMED, Observer, UtteranceRecord
from .state import GatewayState
from .utterance_figures import Change

CONTENT_TYPE: str = CONTENT_TYPE_LATEST

Labels = tuple[str, ...]

_FAILED = "failed"

_FIRST_AUDIO_S = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5)
_QUEUE_S = (0.001, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5)
_LAG_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
_SPEECH_S = (0.5, 1, 2, 5, 10, 20, 40, 80, 160)
_LEAD_S = (0.0, 0.04, 0.08, 0.16, 0.24, 0.32, 0.4, 0.8, 2.0)


class Metrics(Observer):
    """Counts events in a registry of its own; `state` supplies the gauges, None in a process that has none.

    Events and `update_state` belong to the event loop; the registry may be collected in another thread, which takes
    20 ms with a thousand keys.
    """

    def __init__(self, state: Callable[[], GatewayState] | None, protocols: Sequence[str] = ()) -> None:
        self._state = state
        self._state_collector = _StateCollector()
        # Creation times of series are not used and would double their number.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's own annotations are incomplete
        registry = self._registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        registry.register(self._state_collector)
        protocol = ("protocol",)
        self._sessions = Counter("voxgate_sessions", "Sockets and requests accepted.", protocol, registry=registry)
        self._refused = Counter(
            "voxgate_handshakes_refused", "Sockets and requests refused, by reason.", ("reason",), registry=registry
        )
        self._errors = Counter(
            "voxgate_errors", "Errors sent to clients, by code.", ("protocol", "code"), registry=registry
        )
        self._limits_reached = Counter(
            "voxgate_limits_reached",
            "Sockets, connections, uploads, utterances and messages that a limit refused, by limit.",
            ("limit",),
            registry=registry,
        )
        self._utterances = Counter(
            "voxgate_utterances",
            "Utterances that ended: done, interrupted or failed.",
            ("protocol", "outcome"),
            registry=registry,
        )
        self._ttfa = Histogram(
            "voxgate_ttfa_seconds",
            "Time to first audio: from the first text of an utterance to its first packet, queueing included.",
            protocol,
            buckets=_FIRST_AUDIO_S,
            registry=registry,
        )
        self._queue_wait = Histogram(
            "voxgate_queue_wait_seconds", "Time until an utterance was admitted.", buckets=_QUEUE_S, registry=registry
        )
        self._speech = Histogram(
            "voxgate_utterance_audio_seconds", "Audio sent per utterance.", buckets=_SPEECH_S, registry=registry
        )
        self._underruns = Counter(
            "voxgate_underruns",
            "Times a playback clock ran dry with text still to be spoken.",
            protocol,
            registry=registry,
        )
        self._underrun_utterances = Counter(
            "voxgate_underrun_utterances", "Utterances with at least one underrun.", protocol, registry=registry
        )
        self._underrun_seconds = Counter(
            "voxgate_underrun_seconds", "Time spent in underruns.", protocol, registry=registry
        )
        self._continued = Counter(
            "voxgate_continued_utterances",
            "Times an utterance went on in the next engine after a loss of the engine.",
            protocol,
            registry=registry,
        )
        self._silence_seconds = Counter(
            "voxgate_engine_loss_silence_seconds",
            "Time that listeners heard nothing because of a loss of the engine.",
            protocol,
            registry=registry,
        )
        self._changes = Counter(
            "voxgate_utterance_changes",
            "Times an utterance was restored from a checkpoint, held, continued after a hold, or text was taken back.",
            ("protocol", "change"),
            registry=registry,
        )
        self._bytes = Counter(
            "voxgate_audio_bytes", "Audio sent, without message headers.", ("protocol", "codec"), registry=registry
        )
        self._characters = Counter("voxgate_characters", "Text accepted, by key.", ("key",), registry=registry)
        self._audio = Counter("voxgate_audio_seconds", "Audio sent, by key.", ("key",), registry=registry)
        self._key_utterances = Counter(
            "voxgate_key_utterances", "Utterances that ended, by key.", ("key",), registry=registry
        )
        self._resumptions = Counter(
            "voxgate_resumptions",
            "Sessions that lost their connection (detached), were resumed or ended without (expired); resumes refused.",
            ("event",),
            registry=registry,
        )
        self._engine_starts = Counter("voxgate_engine_starts", "Times the voice model was loaded.", registry=registry)
        self._lag = Histogram(
            "voxgate_event_loop_lag_seconds",
            "Lateness of a timer on the event loop; four samples a second.",
            buckets=_LAG_S,
            registry=registry,
        )

        self._create_series(protocols)

    def _create_series(self, protocols: Sequence[str]) -> None:
        """Creates series before their first event: Prometheus cannot see the rise of a series that starts at one."""
        for protocol in protocols:
            for series in (
                self._sessions,
                self._ttfa,
                self._underruns,
                self._underrun_utterances,
                self._underrun_seconds,
                self._continued,
                self._silence_seconds,
            ):
                series.labels(protocol)
            for outcome in (DONE, INTERRUPTED, _FAILED):
                self._utterances.labels(protocol, outcome)
            for change in Change:
                self._changes.labels(protocol, change.value)
            for code in (AtCapacity.code, EngineLost.code):
                self._errors.labels(protocol, code)
        for reason in (AtCapacity.code, Draining.code):
            self._refused.labels(reason)
        for event in (DETACHED, RESUMED, EXPIRED, REFUSED):
            self._resumptions.labels(event)
        for limit in Limit:
            self._limits_reached.labels(limit.value)

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of all metrics."""
        return self._registry

    def update_state(self) -> None:
        """Sets the gauges to the current state."""
        if self._state is not None:
            self._state_collector.state = self._state()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format (CONTENT_TYPE), with the gauges of the last `update_state`."""
        text: bytes = generate_latest(self._registry)
        return text

    def observe_lag(self, lag_s: float) -> None:
        """The event loop ran a timer `lag_s` seconds late."""
        self._lag.observe(lag_s)

    def session_opened(self, protocol: str, key: str) -> None:
        self._sessions.labels(protocol).inc()
        for series in (self._characters, self._audio, self._key_utterances):
            series.labels(key)

    def handshake_refused(self, reason: str, reached: str | None = None) -> None:
        self._refused.labels(reason).inc()
        self._count_limit(reached)

    def error_sent(self, protocol: str, code: str, reached: str | None = None) -> None:
        self._errors.labels(protocol, code).inc()
        self._count_limit(reached)

    def _count_limit(self, reached: str | None) -> None:
        if reached is not None:
            self._limits_reached.labels(reached).inc()

    def resumption(self, event: str) -> None:
        self._resumptions.labels(event).inc()

    def engine_ready(self) -> None:
        self._engine_starts.inc()

    def utterance_ended(self, record: UtteranceRecord) -> None:
        outcome = record.outcome if record.outcome in (DONE, INTERRUPTED) else _FAILED
        self._utterances.labels(record.protocol, outcome).inc()
        if record.ttfa_s is not None:
            self._ttfa.labels(record.protocol).observe(record.ttfa_s)
        if record.queue_wait_s is not None:
            self._queue_wait.observe(record.queue_wait_s)
        if record.audio_s:
            self._speech.observe(record.audio_s)
            self._bytes.labels(record.protocol, record.codec).inc(record.audio_bytes)
        self._underruns.labels(record.protocol).inc(record.underruns)
        self._underrun_utterances.labels(record.protocol).inc(record.underruns > 0)
        self._underrun_seconds.labels(record.protocol).inc(record.underrun_s)
        self._continued.labels(record.protocol).inc(record.continued)
        for change, count in record.changes.items():
            self._changes.labels(record.protocol, change.value).inc(count)
        self._silence_seconds.labels(record.protocol).inc(record.silence_s)
        self._characters.labels(record.key).inc(record.characters)
        self._audio.labels(record.key).inc(record.audio_s)
        self._key_utterances.labels(record.key).inc()


class _StateCollector(Collector):
    """Gauges of one moment."""

    def __init__(self) -> None:
        self.state: GatewayState | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing: there is no state when the collector is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        if (state := self.state) is None:
            return
        yield from (
            _gauge("voxgate_slots", "Utterances that can be spoken at once.", state.slots),
            _gauge("voxgate_active_utterances", "Utterances that hold a slot.", state.active),
            _gauge("voxgate_queued_utterances", "Utterances that wait for a slot.", state.queued),
            _gauge("voxgate_queue_limit", "Maximum number of waiting utterances.", state.queue_limit),
            _gauge("voxgate_sockets_limit", "Maximum number of open sockets.", state.sockets_limit),
            _gauge("voxgate_load", "Load: 0 idle, 1 full, above 1 while utterances wait.", state.load),
            _gauge("voxgate_draining", "1 while the gateway shuts down.", state.draining),
        )
        yield _family("voxgate_sockets", "Open sockets.", ("protocol",), {(d,): n for d, n in state.sockets.items()})
        engine: dict[Labels, float] = {(each.value,): each is state.engine for each in EngineState}
        yield _family("voxgate_engine_state", "1 for the current state of the voice model.", ("state",), engine)
        yield _lead(state.leads_s)
        p50_s: dict[Labels, float] = {}
        p90_s: dict[Labels, float] = {}
        taken: dict[Labels, float] = {}
        for step in state.steps:
            at = (step.part, str(step.batch))
            p50_s[at], p90_s[at], taken[at] = step.p50_s, step.p90_s, step.steps
        yield _family("voxgate_step_seconds_p50", "Median of recent steps.", ("part", "batch"), p50_s)
        yield _family("voxgate_step_seconds_p90", "90th percentile of recent steps.", ("part", "batch"), p90_s)
        steps = CounterMetricFamily("voxgate_steps", "Steps since the engine started.", labels=("part", "batch"))
        for labels, count in taken.items():
            steps.add_metric(labels, count)
        yield steps
        changes = CounterMetricFamily(
            "voxgate_capacity_changes", "Changes of voxgate_slots since the engine started.", labels=("cause",)
        )
        for cause, count in state.capacity_changes.items():
            changes.add_metric((cause,), count)
        yield changes
        yield _family("voxgate_build_info", "The running version.", ("version",), {(_version(),): 1})


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def _family(name: str, documentation: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for at, value in values.items():
        family.add_metric(at, value)
    return family


def _lead(leads_s: Sequence[float]) -> Metric:
    """Playing utterances with at most `le` seconds of audio ahead of playback, cumulative."""
    counts: dict[Labels, float] = {(f"{bound:g}",): sum(lead_s <= bound for lead_s in leads_s) for bound in _LEAD_S}
    documentation = "Playing utterances with at most this audio ahead of playback, cumulative."
    counts["+Inf",] = len(leads_s)
    return _family("voxgate_lead_utterances", documentation, ("le",), counts)


def _version() -> str:
    try:
        return version("voxgate")
    except PackageNotFoundError:
        return "unknown"


LAG_INTERVAL_S = 0.25
"""Seconds between two measurements of the event loop's lateness."""


async def watch_lag(on_lag: Callable[[float], None], interval_s: float = LAG_INTERVAL_S) -> None:
    """Calls `on_lag` every `interval_s` seconds with the lateness of a timer in seconds; never returns."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        on_lag(max(0.0, loop.time() - due_s))
