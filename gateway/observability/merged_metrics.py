"""Metrics of several processes as those of one gateway: counters are added up, gauges of now come from one process.

The multiprocess mode of prometheus_client does not serve by its documentation: it has no process metrics, keeps files
per process on disk, and gauges come from these files, while sockets and leads are asked of the workers at the scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SampleKey = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a sample."""

_ADDED_TYPES = ("counter", "histogram")
_ADDED_GAUGES = ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds")


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a metric family."""

    family: str
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class WorkerMetrics(msgspec.Struct, frozen=True):
    """Additive samples of a worker, its open sockets by protocol, and leads of its playing utterances in seconds."""

    samples: list[MetricSample]
    sockets: dict[str, int]
    leads_s: list[float]

    def pack(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpack(cls, packed: bytes) -> WorkerMetrics:
        """Raises msgspec.MsgspecError for malformed data."""
        return msgspec.msgpack.decode(packed, type=cls)


def additive_samples(collector: Collector) -> list[MetricSample]:
    """Samples of a process that can be added to those of others."""
    return [
        MetricSample(family.name, sample.name, tuple(sample.labels.items()), sample.value)
        for family in collector.collect()
        if family.type in _ADDED_TYPES or family.name in _ADDED_GAUGES
        for sample in family.samples
    ]


class MergedMetrics:
    """Adds up samples; those of ended processes stay counted."""

    def __init__(self) -> None:
        self._ended: list[MetricSample] = []

    def keep(self, samples: Iterable[MetricSample]) -> None:
        """Adds the last samples of a process that has ended."""
        lasting = [sample for sample in samples if sample.family not in _ADDED_GAUGES]
        self._ended = [
            MetricSample(family, *key, value) for (family, key), value in _sums([self._ended, lasting]).items()
        ]

    def exposition(self, own: Collector, others: Sequence[Iterable[MetricSample]]) -> bytes:
        """The text of this process's metrics with those of others added."""
        sums = _sums([self._ended, *others])
        text: bytes = generate_latest(_MergedCollector(own, sums))
        return text


def _sums(sources: Iterable[Iterable[MetricSample]]) -> dict[tuple[str, SampleKey], float]:
    sums: dict[tuple[str, SampleKey], float] = {}
    for samples in sources:
        for sample in samples:
            at = sample.family, (sample.name, tuple(sorted(sample.labels)))
            sums[at] = sums.get(at, 0.0) + sample.value
    return sums


class _MergedCollector(Collector):
    def __init__(self, own: Collector, sums: dict[tuple[str, SampleKey], float]) -> None:
        self._own, self._sums = own, sums

    def collect(self) -> Iterable[Metric]:
        left = dict(self._sums)
        families = []
        for family in self._own.collect():
            merged = Metric(family.name, family.documentation, family.type)
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                value = sample.value + left.pop((family.name, key), 0.0)
                merged.add_sample(sample.name, sample.labels, value)
            families.append(merged)
        by_name = {family.name: family for family in families}
        # Series that exist only in other processes, such as keys and error codes.
        for (name, (sample_name, labels)), value in left.items():
            if name in by_name:
                by_name[name].add_sample(sample_name, dict(labels), value)
        return families
