from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
from voxgate.benchmarks.fleet import Fleet
from voxgate.benchmarks.gpu.clone import REFERENCE_FRAMES, SUFFIX, write_clone
from voxgate.benchmarks.gpu.command import FleetLoads, draw, last_document, rate_durations, split_cores
from voxgate.benchmarks.gpu.report import (
    OVERLOADED,
    GpuReport,
    SizeResult,
    gateways_plot,
    latency_plot,
    markdown,
    step_plot,
)
from voxgate.benchmarks.random_checkpoint import talker_shapes
from voxgate.loadtest import processes
from voxgate.loadtest.plan import LoadStep
from voxgate.loadtest.results import Outcome, StepFigures, StepResult, UtteranceResult, summarise_step
from voxgate.pipeline.cloning.store import VoiceStore
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions


@pytest.mark.parametrize(("size", "tensors", "parameters"), [("0.6B", 402, 905_788_672), ("1.7B", 404, 1_916_676_352)])
def test_random_checkpoints_have_the_published_sizes(size: str, tensors: int, parameters: int) -> None:
    shapes = dict(talker_shapes(size))
    assert len(shapes) == tensors
    assert sum(math.prod(shape) for shape in shapes.values()) == parameters


def step_result(count: int, *, first_ms: float = 20.0, underruns: int = 0, lag_ms: float = 1.0) -> StepResult:
    results = [
        UtteranceResult(
            number,
            outcome=Outcome.DONE,
            first_byte_ms=first_ms,
            server_ms=15.0,
            gaps_ms=[80.0],
            underruns={0: 0, 80: 0, 200: int(number < underruns)},
            audio_s=5.0,
        )
        for number in range(count)
    ]
    return StepResult(results, [lag_ms], 0.5, 10.0)


def step(load: str, size: float, **of: Any) -> StepFigures:
    return summarise_step(load, size, step_result(4, **of), 1.5, 0.0)


@pytest.fixture
def result() -> SizeResult:
    engine = {"start_s": 40.0, "first": {"alone": {"p50": 5.5}}, "talker": {"1": 3.9, "8": 4.5}, "backbone": {"1": 1.5}}
    engine["profile"] = {"12": {"busy": 0.9}}
    parts = {"predictor": {"1": 1.6, "8": 2.1}, "codec": None, "engine": engine}
    busy = step("60/s", 60, first_ms=30.0, lag_ms=50.0)
    return SizeResult("1.7B", parts, 44.0, 1000, [step("10/s", 10), busy, step("400 listeners", 400, underruns=1)])


def test_table_shows_parts_loads_and_failures(result: SizeResult) -> None:
    lines = markdown(GpuReport("a GPU", "2026-01-02", "bench gpu", 16, [result]))
    assert "- predictor, ms: 1: 1.6, 8: 2.1" in lines
    assert "- codec: failed" in lines
    assert "- first, alone, ms: p50: 5.5" in lines
    assert "- talker, ms: 1: 3.9, 8: 4.5" in lines
    assert "- profile, 12, share: busy: 0.9" in lines
    assert "| 10/s | 4 | 0 | 0 | 20.0 / 20.0 / 20.0 | 0 / 0 / 0 | 80.0 | 2 | 1.5 | 750 |" in lines
    assert any(f"60/s ({OVERLOADED})" in line for line in lines), "an overloaded client is not marked"


def test_unmeasured_values_are_null_in_json(result: SizeResult) -> None:
    report = json.loads(GpuReport("a GPU", "2026-01-02", "bench gpu", 16, [result, SizeResult("0.6B")]).as_json())
    assert report["sizes"][0]["loads"][0]["first_byte"]["p95"] == 20.0
    assert report["sizes"][0]["loads"][0]["cancel"]["p95"] is None
    assert report["sizes"][1]["ready_s"] is None


def test_plots_draw_the_measured_values(result: SizeResult) -> None:
    steps = minidom.parseString(step_plot(result))
    assert len(steps.getElementsByTagName("polyline")) == 3
    latency = minidom.parseString(latency_plot(result))
    points = latency.getElementsByTagName("polyline")[0].getAttribute("points")
    assert len(points.split()) == 2, "a step of listeners is not a rate"
    assert latency_plot(SizeResult("0.6B")) == ""


def test_last_json_line_of_the_output_counts() -> None:
    assert last_document('a library\n{"1": 2}\n{"1": 2, "8": 3}\n{"1": 2, "8"') == {"1": 2, "8": 3}
    assert last_document("Traceback\n") is None


def test_clients_get_separate_cores_where_there_are_enough() -> None:
    assert split_cores(range(4)) == (range(4), range(4))
    servers, clients = split_cores(range(32))
    assert (len(servers), len(clients)) == (24, 8)
    assert not set(servers) & set(clients)


def test_rates_have_one_duration_or_one_each() -> None:
    assert rate_durations("1,10", "7") == [(1, 7.0), (10, 7.0)]
    assert rate_durations("1,10", "30,2.5") == [(1, 30.0), (10, 2.5)]
    assert rate_durations("", "10") == []


@pytest.mark.parametrize("seconds", ["1,2,3", "0", "5,-1", "soon"])
def test_durations_of_another_number_or_not_above_zero_are_refused(seconds: str) -> None:
    with pytest.raises(ValueError, match=r"--seconds|soon"):
        rate_durations("1,10", seconds)


class FakeClients:
    """Replaces the client processes; more than `capacity` listeners have underruns."""

    def __init__(self, capacity: int) -> None:
        self.loads: list[LoadStep] = []
        self._capacity = capacity

    async def __call__(self, load: LoadStep, *_: object) -> StepResult:
        self.loads.append(load)
        return step_result(max(1, load.streams), underruns=int(load.streams > self._capacity))


@pytest.mark.parametrize(
    ("capacity", "tried", "best"),
    [(1000, [100, 200, 400], 400), (250, [100, 200, 400, 300], 200), (310, [100, 200, 400, 300], 300), (50, [100], 0)],
)
async def test_listener_counts_rise_until_one_fails(
    monkeypatch: pytest.MonkeyPatch, capacity: int, tried: list[int], best: int
) -> None:
    clients = FakeClients(capacity)
    monkeypatch.setattr(processes, "run_step", clients)
    saved: list[int] = []
    rows: list[StepFigures] = []
    loads = FleetLoads(Fleet("http://127.0.0.1:1", []), 2, rows, lambda: saved.append(len(rows)))
    assert await loads.most_listeners([100, 200, 400], 12, 6.0) == best
    assert [load.streams for load in clients.loads] == tried
    assert saved == list(range(1, len(tried) + 1)), "figures are not saved after each load"


async def test_loads_have_duration_and_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = FakeClients(1000)
    monkeypatch.setattr(processes, "run_step", clients)
    rows: list[StepFigures] = []
    loads = FleetLoads(Fleet("http://127.0.0.1:1", []), 2, rows, lambda: None)
    await loads.warm_up()
    await loads.arrivals(20, 8.0)
    await loads.arrivals(1, 8.0)
    await loads.unpaced(64)
    await loads.most_listeners([40], 60, 30.0)
    arrivals, rare, unpaced, listeners = clients.loads[1:]
    assert (arrivals.rate_per_s, arrivals.seconds) == (20, 8.0)
    assert (arrivals.options.frames, arrivals.options.paced) == (63, True)
    assert (rare.rate_per_s, rare.seconds) == (1, 30.0), "too few utterances"
    assert (unpaced.streams, unpaced.options.paced) == (64, False)
    assert (listeners.streams, listeners.seconds, listeners.spread_s) == (40, 30.0, 30.0)
    assert (listeners.options.frames, listeners.sentences) == (750, 5), "the text is too short for the speech"
    assert [row.load for row in rows][:3] == ["20/s", "1/s", "64 unpaced"], "the warm-up is not reported"


async def test_loads_in_the_cloned_voice_are_compared_with_those_in_a_named_one(
    monkeypatch: pytest.MonkeyPatch, result: SizeResult
) -> None:
    clients = FakeClients(1000)
    monkeypatch.setattr(processes, "run_step", clients)
    rows: list[StepFigures] = []
    for suffix in ("", SUFFIX):
        loads = FleetLoads(Fleet("http://127.0.0.1:1", []), 2, rows, lambda: None, suffix=suffix, codec="opus")
        await loads.arrivals(20, 8.0)
    assert {load.options.codec for load in clients.loads} == {"opus"}
    assert [(load.options.voice, row.load) for load, row in zip(clients.loads, rows, strict=True)] == [
        ("", "20/s"),
        ("clone", "20/s clone"),
    ]
    result.loads = [*rows, step("5/s clone", 5)]
    compared = [
        line for line in markdown(GpuReport("a GPU", "2026-01-02", "bench gpu", 16, [result])) if "named" in line
    ]
    assert len(compared) == 1, "a load without counterpart is not compared"
    assert compared[0].startswith("- cloned voice at 20/s: first audio p95 20.0 ms, named voice 20.0 ms, 100% of")


def test_clone_of_the_benchmark_fits_a_base_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    shutil.copytree(Path(__file__).parents[3] / "voices" / "demo", folder, copy_function=os.symlink)
    config = json.loads((folder / "config.json").read_text()) | {"tts_model_type": "base"}
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    write_clone(folder, tmp_path / "voices")
    (stored,) = VoiceStore(tmp_path / "voices").load_all().values()
    model = QwenSynthesizer(folder, SynthesizerOptions(slots=1))
    model.add_voice(stored.voice)
    assert len(model._plan(SpeechRequest("clone")).prompt.reference) == REFERENCE_FRAMES
    assert model.default_voice != "clone", "the same gateway speaks with a named voice"


async def test_load_is_multiplied_by_the_number_of_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = FakeClients(1000)
    monkeypatch.setattr(processes, "run_step", clients)
    rows: list[StepFigures] = []
    loads = FleetLoads(Fleet("http://127.0.0.1:1", []), 2, rows, lambda: None, 4)
    await loads.arrivals(20, 8.0)
    assert await loads.most_listeners([200, 300], 12, 6.0) == 250, "per gateway"
    await loads.unpaced(64)
    arrivals, *listeners, unpaced = clients.loads
    assert arrivals.rate_per_s == 80
    assert [load.streams for load in listeners] == [800, 1200, 1000]
    assert unpaced.streams == 256
    assert rows[0].load == "80/s"


def test_results_of_several_gateways_are_distinguished(result: SizeResult, tmp_path: Path) -> None:
    four = SizeResult("1.7B", {}, 44.0, 1000, [step("400 unpaced", 400)], gateways=4)
    lines = markdown(GpuReport("a GPU", "2026-01-02", "bench gpu", 16, [result, four]))
    assert [line.partition(":")[0] for line in lines if line.startswith("**")] == ["**1.7B**", "**1.7B, 4 gateways**"]
    points = minidom.parseString(gateways_plot([result, four])).getElementsByTagName("polyline")[0]
    assert len(points.getAttribute("points").split()) == 2
    draw(tmp_path, [result, four])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gpu_gateways_1.7B.svg",
        "gpu_latency_1.7B.svg",
        "gpu_step_1.7B.svg",
    ]
    draw(tmp_path / "nothing", [SizeResult("0.6B")])
    assert not list((tmp_path / "nothing").iterdir())
