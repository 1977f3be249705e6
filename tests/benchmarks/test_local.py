from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from voxgate.benchmarks import local
from voxgate.benchmarks.local import BenchmarkError, times_real_time
from voxgate.gateway.ready_file import ReadyGateway
from voxgate.loadtest.plan import LoadStep
from voxgate.loadtest.results import Outcome, StepFigures, StepResult, UtteranceResult, summarise_step

PARSED = Namespace(streams="1,4", first_audio_utterances=2, codec="pcm", serve="")


def spoken(first_ms: float = 100.0) -> UtteranceResult:
    return UtteranceResult(0, outcome=Outcome.DONE, first_byte_ms=first_ms, audio_s=4.0, receiving_s=0.9)


def refused() -> UtteranceResult:
    return UtteranceResult(0, outcome=Outcome.REFUSED, code="at_capacity")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[LoadStep], list[UtteranceResult]]], None]:
    """Replaces the gateway by none and each step's client processes by a function."""

    @asynccontextmanager
    async def one_gateway(_: Any) -> AsyncIterator[ReadyGateway]:
        yield ReadyGateway("http://127.0.0.1:4242/", 4242, None, 4, 1)

    class NoProcess:
        def __init__(self, pid: int) -> None: ...

        def children(self, recursive: bool) -> list[Any]:  # noqa: ARG002 - as psutil's
            return []

    def replace(results: Callable[[LoadStep], list[UtteranceResult]]) -> None:
        async def measure_step(
            name: str, step: LoadStep, _: int, on_result: Any = lambda _: None, **__: Any
        ) -> StepFigures:
            for result in results(step):
                on_result(result)
            return summarise_step(name, step.streams, StepResult(results(step), seconds=1.0), 1.5, 900.0)

        monkeypatch.setattr(local, "measure_step", measure_step)

    monkeypatch.setattr(local, "one_gateway", one_gateway)
    monkeypatch.setattr(local.psutil, "Process", NoProcess)
    return replace


def test_speed_counts_from_the_first_text() -> None:
    assert times_real_time([spoken()]) == pytest.approx(4.0)


def test_report_when_every_stream_is_refused(measured: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    measured(lambda step: [refused()] * 4 if step.streams == 4 else [spoken()] * 2)
    report = asyncio.run(local._measure(PARSED))
    local._print_report(report)
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split()[:4] == ["4", "4", "0", "-"]
    assert report.memory_mb == 900.0


def test_refused_single_stream_ends_the_benchmark(measured: Callable[..., None]) -> None:
    measured(lambda _: [refused()])
    with pytest.raises(BenchmarkError, match="refused: at_capacity"):
        asyncio.run(local._measure(PARSED))
