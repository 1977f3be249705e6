"""`voxgate bench local`: latency, speed and capacity of this machine, with a gateway of its own and a real socket."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import psutil
from voxgate.loadtest.plan import LoadStep
from voxgate.loadtest.processes import measure_step, processes_for
from voxgate.loadtest.report import join_ms
from voxgate.loadtest.results import BUFFERS_MS, Outcome, Percentiles, StepFigures, UtteranceResult, to_json
from voxgate.loadtest.targets.connection import TargetOptions

from .fleet import GatewayStartError, one_gateway

TARGET = "voxgate"
SPEED_UTTERANCES = 3


class BenchmarkError(Exception):
    """The gateway gave nothing to measure; the text gives the reason."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", default="1,4,8,12,16", help="numbers of concurrent streams (default: %(default)s)")
    parser.add_argument(
        "--first-audio-utterances",
        type=int,
        default=20,
        metavar="N",
        help="utterances to measure the time to first audio with (default: %(default)s)",
    )
    parser.add_argument(
        "--codec", choices=("pcm", "opus"), default="opus", help="codec of the streams (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    parser.add_argument("--serve", default="", metavar="FLAGS", help="flags for the gateway, such as '--slots 8'")


def run(parsed: argparse.Namespace) -> int:
    try:
        report = asyncio.run(_measure(parsed))
    except (GatewayStartError, BenchmarkError) as failure:
        print(f"voxgate bench local: {failure}", file=sys.stderr)
        return 1
    _print_report(report)
    if parsed.json is not None:
        parsed.json.write_text(to_json(asdict(report)) + "\n", encoding="utf-8")
    return 0


@dataclass(frozen=True, slots=True)
class LocalReport:
    """`first_audio` and `times_real_time` are of one stream; `steps` have one row per number of streams."""

    machine: str
    day: str
    ready_s: float
    first_audio: Percentiles
    times_real_time: float
    steps: list[StepFigures]
    memory_mb: float
    processes_left: int


async def _measure(parsed: argparse.Namespace) -> LocalReport:
    began_s = time.monotonic()
    async with one_gateway(parsed.serve.split()) as gateway:
        ready_s = time.monotonic() - began_s
        _progress(f"ready after {ready_s:.1f} s")
        await _one_stream(gateway.url, parsed.codec, 1)  # fills caches
        first_audio = Percentiles.of(
            result.first_byte_ms
            for result in await _one_stream(gateway.url, parsed.codec, parsed.first_audio_utterances)
        )
        _progress(f"time to first audio: median {first_audio.p50:.0f} ms")
        speed = times_real_time(await _one_stream(gateway.url, "pcm", SPEED_UTTERANCES, sentences=3))
        _progress(f"one stream: {speed:.1f} times faster than real time")
        steps = []
        for streams in (int(number) for number in parsed.streams.split(",")):
            # No utterance begins after 0 s: each stream speaks once.
            step = LoadStep(TARGET, TargetOptions(gateway.url, codec=parsed.codec), seconds=0, streams=streams)
            name = f"{streams} stream{'s' * (streams > 1)}"
            steps.append(await measure_step(name, step, processes_for(step), server_pids=[gateway.pid]))
            _progress(f"{name}: {steps[-1].utterances_with_underruns[200]} with underruns at a buffer of 200 ms")
        family = psutil.Process(gateway.pid).children(recursive=True)
    _, alive = psutil.wait_procs(family, timeout=3)
    left = sum(_is_running(process) for process in alive)
    memory_mb = max(step.server_memory_mb or 0.0 for step in steps)
    return LocalReport(_machine(), date.today().isoformat(), ready_s, first_audio, speed, steps, memory_mb, left)


async def _one_stream(url: str, codec: str, utterances: int, sentences: int = 1) -> list[UtteranceResult]:
    """Speaks utterances one after another, each as fast as the gateway can. Raises BenchmarkError."""
    results: list[UtteranceResult] = []
    step = LoadStep(
        TARGET,
        TargetOptions(url, codec=codec, paced=False),
        seconds=3600,
        streams=1,
        sentences=sentences,
        words_per_s=0,
        spread_s=0,
        utterances_per_stream=utterances,
    )
    await measure_step("1 stream", step, 1, results.append)
    for result in results:
        if result.outcome is not Outcome.DONE:
            raise BenchmarkError(f"an utterance of the only client was {result.outcome}: {result.code}")
    return results


def times_real_time(results: Sequence[UtteranceResult]) -> float:
    """Median, over unpaced utterances, of the seconds of audio made per second from the first text on."""
    return statistics.median(
        result.audio_s / (result.first_byte_ms / 1000 + result.receiving_s)
        for result in results
        if result.first_byte_ms is not None
    )


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    model = next(models, platform.processor())
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"


def _progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _print_report(report: LocalReport) -> None:
    first = report.first_audio
    print(f"\n{report.machine}, {report.day}\n")
    print(f"ready after                 {report.ready_s:8.1f} s")
    print(f"first audio, one stream     {first.p50:8.0f} ms median, {first.max:.0f} ms maximum")
    print(f"one stream, unpaced         {report.times_real_time:8.1f} x real time")
    print(f"memory of all processes     {report.memory_mb:8.0f} MB")
    print(f"processes left afterwards   {report.processes_left:8d}\n")
    buffers = "/".join(map(str, BUFFERS_MS))
    underruns = f"with underruns at buffer {buffers} ms"
    print(f"streams  refused  failed  first audio p50/max  longest gap  {underruns}  CPU cores")
    for step in report.steps:
        first_audio, gap = join_ms(step.first_byte.p50, step.first_byte.max), join_ms(step.gap.max)
        counts = f"{step.size:7.0f}  {sum(step.refused.values()):7d}  {sum(step.failed.values()):6d}  {first_audio:>19}"
        shown = "/".join(str(step.utterances_with_underruns[ms]) for ms in BUFFERS_MS)
        print(f"{counts}  {gap:>11}  {shown:>{len(underruns)}}  {step.server_cores or 0:9.2f}")
