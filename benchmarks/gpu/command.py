"""`voxgate bench gpu`: what one GPU or several can carry, with random weights of the published sizes.

Random weights are as fast as trained ones; their speech is noise. Every utterance is cut after a number of frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from voxgate.codecs.pcm import FRAME_MS
from voxgate.loadtest.plan import LoadStep
from voxgate.loadtest.processes import measure_step
from voxgate.loadtest.results import StepFigures
from voxgate.loadtest.targets.connection import TargetOptions

from ..fleet import Fleet, GatewayStartError, balanced, gateways, on_cores, one_gateway
from ..random_checkpoint import write_random_checkpoint
from .clone import NAME, SUFFIX, write_clone
from .report import GpuReport, SizeResult, gateways_plot, latency_plot, markdown, step_plot

UTTERANCE_FRAMES = 63
"""Five seconds."""
UNPACED_FRAMES = 150
"""Twelve seconds."""
SENTENCE_FRAMES = 150
"""Frames that the text of one sentence permits, by the default limits of a voice."""
MIN_UTTERANCES = 30
"""A rate lasts until so many utterances are expected, so that its 95th percentile is not the maximum."""
UNPACED_S = 60.0
"""Time in which unpaced utterances begin. The last ones, of which ever fewer are left, then weigh little."""
BUFFER_MS = 200
"""A step of listeners passes when no player with this start buffer has an underrun."""
PART_TIMEOUT_S = 270.0
DEFAULT_PARTS = ("layers", "predictor", "codec", "engine")
CLIENT_SHARE = 1 / 4
"""Share of the cores for the clients, on a machine with more than FEW_CORES."""
FEW_CORES = 8


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sizes", default="0.6B,1.7B", help="published sizes to measure (default: %(default)s)")
    add(
        "--parts",
        default=",".join(DEFAULT_PARTS),
        help="parts to measure without a socket; also layers-fp8, attention, predictor-chain, engine-vllm, first, "
        "sharing, soak, aborts (default: %(default)s)",
    )
    add("--rates", default="1,10,20,40,60", help="utterances per second (default: %(default)s)")
    add(
        "--seconds",
        default="10",
        help="minimum duration of every rate, or one for each, such as 30,100,50 (default: %(default)s)",
    )
    add(
        "--listeners",
        default="128,256,384",
        help="concurrent listeners, rising until a step fails, then once between (default: %(default)s)",
    )
    add("--listener-seconds", type=int, default=12, help="speech of each listener (default: %(default)s)")
    add("--arrive-seconds", type=float, default=6.0, help="time in which all listeners arrive (default: %(default)s)")
    add("--unpaced", default="64,256", help="concurrent utterances without pacing (default: %(default)s)")
    add(
        "--voice",
        choices=("named", NAME),
        default="named",
        help="clone: every load in a named voice, then in one with eight seconds of reference (default: %(default)s)",
    )
    add("--codec", choices=("pcm", "opus"), default="pcm", help="of the audio sent (default: %(default)s)")
    add("--slots", type=int, help="talker slots of each gateway, all admitted (default: the gateway's choice of both)")
    add("--workers", help="socket processes of each gateway (default: the gateway's choice)")
    add("--serve", default="", metavar="FLAGS", help="further flags for the gateways")
    add(
        "--replicas",
        default="",
        metavar="N,N,...",
        help="numbers of gateways behind HAProxy, each with a GPU of its own; the loads are multiplied",
    )
    add("--clients", type=int, help="client processes (default: one per client core)")
    add("--checkpoints", type=Path, help="folder to keep the random checkpoints in")
    add("--plot", type=Path, metavar="FOLDER", help="write plots of steps and latency, as SVG")
    add("--json", type=Path, metavar="FILE", help="write the figures as they are measured")


def run(parsed: argparse.Namespace) -> int:
    if shutil.which("nvidia-smi") is None:
        print("voxgate bench gpu: this machine has no NVIDIA GPU", file=sys.stderr)
        return 1
    try:
        rates = rate_durations(parsed.rates, parsed.seconds)
    except ValueError as error:
        print(f"voxgate bench gpu: {error}", file=sys.stderr)
        return 2
    report = GpuReport(_gpu(), date.today().isoformat(), " ".join(sys.argv[1:]), len(os.sched_getaffinity(0)))

    def save() -> None:
        """Called after each measurement, so that a later failure loses nothing."""
        if parsed.json is not None:
            parsed.json.write_text(report.as_json(), encoding="utf-8")

    failed = False
    with tempfile.TemporaryDirectory(prefix="voxgate-bench-") as name:
        for size in filter(None, parsed.sizes.split(",")):
            model_type = "base" if parsed.voice == NAME else "custom_voice"
            folder = (parsed.checkpoints or Path(name)) / (f"{size}-base" if parsed.voice == NAME else size)
            if not folder.exists():
                progress(f"{size}: making a checkpoint")
                write_random_checkpoint(folder, size, device="cuda", model_type=model_type)
            counts = numbers(parsed.replicas) or [1]
            results = [SizeResult(size, gateways=count) for count in counts]
            report.sizes += results
            time_parts(folder, [part for part in parsed.parts.split(",") if part], results[0], save)
            try:
                if parsed.rates or parsed.listeners or parsed.unpaced:
                    asyncio.run(measure_loads(parsed, rates, folder, results, save))
            except GatewayStartError as failure:
                print(f"voxgate bench gpu: {failure}", file=sys.stderr)
                failed = True
            save()
            if parsed.plot is not None:
                draw(parsed.plot, results)
    print("\n".join(markdown(report)))
    return int(failed)


def draw(folder: Path, results: Sequence[SizeResult]) -> None:
    """Draws what was measured of one size into `folder`."""
    first = results[0]
    drawings = {"step": step_plot(first), "latency": latency_plot(first)}
    if len(results) > 1:
        drawings["gateways"] = gateways_plot(results)
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        if drawing:
            (folder / f"gpu_{name}_{first.size}.svg").write_text(drawing, encoding="utf-8")


def time_parts(folder: Path, parts: Sequence[str], result: SizeResult, save: Callable[[], None]) -> None:
    """Times each part in a process of its own, which leaves no memory allocated; the last line it prints counts."""
    for part in parts:
        began_s = time.monotonic()
        command = [sys.executable, "-m", f"{__package__}.parts", str(folder), part]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                output, _ = process.communicate(timeout=PART_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
        result.parts[part] = last_document(output)
        progress(f"{result.size}: {part} ({time.monotonic() - began_s:.0f} s) {result.parts[part]}")
        save()


def last_document(output: str) -> Any:
    """The last line of `output` that is a JSON object, skipping what libraries print; None without any."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


async def measure_loads(
    parsed: argparse.Namespace,
    rates: Sequence[tuple[int, float]],
    folder: Path,
    results: Sequence[SizeResult],
    save: Callable[[], None],
) -> None:
    """Fills in `results`, each for its number of gateways; every gateway is started once. `rates`: with durations."""
    began_s = time.monotonic()
    flags = ["--checkpoint", str(folder), *parsed.serve.split()]
    if parsed.slots is not None:
        # Every utterance is admitted up to the slots: the capacity is to be measured, not to be predicted.
        slots = str(parsed.slots)
        flags += ["--slots", slots, "--active-utterances", slots, "--sockets", "8000"]
    if parsed.workers is not None:
        flags += ["--workers", parsed.workers]
    suffixes = [""]
    if parsed.voice == NAME:
        voices = folder / "voices"
        if not voices.exists():
            write_clone(folder, voices)
        flags += ["--voices-dir", str(voices)]
        suffixes.append(SUFFIX)
    servers, clients = split_cores(sorted(os.sched_getaffinity(0)))

    async def run_loads(fleet: Fleet, result: SizeResult) -> None:
        result.ready_s = ready_s
        with on_cores(clients):
            count = parsed.clients or len(clients)
            loads_in = partial(FleetLoads, fleet, count, result.loads, save, result.gateways, codec=parsed.codec)
            voices = [loads_in(suffix=suffix) for suffix in suffixes]
            for loads in voices:
                await loads.warm_up()
            for rate, seconds in rates:
                for loads in voices:
                    await loads.arrivals(rate, seconds)
            for loads in voices:
                await loads.most_listeners(numbers(parsed.listeners), parsed.listener_seconds, parsed.arrive_seconds)
            for streams in numbers(parsed.unpaced):
                for loads in voices:
                    await loads.unpaced(streams)
        result.gpu_memory_mb = _gpu_memory_mb()

    async with AsyncExitStack() as stack:
        with on_cores(servers):
            if parsed.replicas:
                count = max(result.gateways for result in results)
                running = await stack.enter_async_context(gateways(count, flags))
            else:
                alone = await stack.enter_async_context(one_gateway(flags))
        ready_s = round(time.monotonic() - began_s, 1)
        progress(f"{results[0].size}: ready after {ready_s} s")
        if not parsed.replicas:
            await run_loads(Fleet(alone.url, [alone.pid]), results[0])
            return
        for result in results:
            async with AsyncExitStack() as front:
                with on_cores(servers):
                    fleet = await front.enter_async_context(balanced(running[: result.gateways]))
                await run_loads(fleet, result)


class FleetLoads:
    """Runs loads on a fleet, each multiplied by `multiple`; appends the figures to `rows` and calls `save`.

    `suffix`: of the names of loads, SUFFIX for those in the cloned voice.
    """

    def __init__(
        self,
        fleet: Fleet,
        processes: int,
        rows: list[StepFigures],
        save: Callable[[], None],
        multiple: int = 1,
        *,
        suffix: str = "",
        codec: str = "pcm",
    ) -> None:
        self._fleet, self._processes, self._rows, self._save, self._multiple = fleet, processes, rows, save, multiple
        self._suffix, self._codec = suffix, codec

    async def warm_up(self) -> None:
        await self._run("warm-up", rate_per_s=4.0, seconds=1.0, frames=12)
        self._rows.clear()

    async def arrivals(self, rate_per_s: float, seconds: float) -> None:
        """Starts utterances of five seconds as a Poisson process, whatever becomes of earlier ones."""
        rate_per_s *= self._multiple
        seconds = max(seconds, MIN_UTTERANCES / rate_per_s)
        await self._run(f"{rate_per_s:g}/s", rate_per_s=rate_per_s, seconds=seconds, frames=UTTERANCE_FRAMES)

    async def most_listeners(self, counts: Sequence[int], seconds: int, arrive_s: float) -> int:
        """Tries rising numbers of listeners per gateway until one fails, then one between; returns the last to pass.

        Each listens for `seconds`; all arrive within `arrive_s`.
        """
        best = 0
        for count in counts:
            if not await self._listeners(count, seconds, arrive_s):
                between = (best + count) // 2
                if best and await self._listeners(between, seconds, arrive_s):
                    best = between
                break
            best = count
        return best

    async def unpaced(self, count: int) -> None:
        """Keeps `count` utterances per gateway active, each made as fast as possible."""
        count *= self._multiple
        await self._run(
            f"{count} unpaced", streams=count, seconds=UNPACED_S, frames=UNPACED_FRAMES, spread_s=0.5, paced=False
        )

    async def _listeners(self, count: int, seconds: int, arrive_s: float) -> bool:
        count *= self._multiple
        frames = seconds * 1000 // FRAME_MS
        step = await self._run(
            f"{count} listeners", streams=count, seconds=arrive_s, frames=frames, spread_s=arrive_s,
            sentences=math.ceil(frames / SENTENCE_FRAMES),
        )  # fmt: skip  # one argument list
        return not (step.refused or step.failed or step.utterances_with_underruns[BUFFER_MS])

    async def _run(self, name: str, *, frames: int, paced: bool = True, sentences: int = 1, **load: Any) -> StepFigures:
        name += self._suffix
        voice = NAME if self._suffix else ""
        options = TargetOptions(self._fleet.url, voice=voice, frames=frames, paced=paced, codec=self._codec)
        plan = LoadStep("voxgate", options, sentences=sentences, words_per_s=0, seed=1 + len(self._rows), **load)
        step = await measure_step(name, plan, self._processes, server_pids=self._fleet.pids, memory=False)
        self._rows.append(step)
        self._save()
        first = f"{step.first_byte.p50:.1f}/{step.first_byte.p95:.1f}/{step.first_byte.p99:.1f}"
        reported = f"{step.server.p50:.0f}/{step.server.p95:.0f}"
        progress(
            f"{name}: {step.utterances} utterances, first audio {first} ms (server: {reported}), "
            f"underruns {step.utterances_with_underruns}, {step.audio_per_s:.0f} audio s/s, "
            f"{step.server_cores or 0:.1f} cores, refused {step.refused}, failed {step.failed}, "
            f"client {step.client_cpu_s:.1f} s CPU, lag {step.client_lag_p99_ms:.1f} ms"
        )
        return step


def split_cores(cores: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Divides the cores between servers and clients; with few cores, both get all of them."""
    if len(cores) <= FEW_CORES:
        return cores, cores
    clients = int(len(cores) * CLIENT_SHARE)
    return cores[:-clients], cores[-clients:]


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def rate_durations(rates: str, seconds: str) -> Sequence[tuple[int, float]]:
    """The rates with their minimum durations in seconds: one for all of them, or one for each.

    Raises ValueError for what is not a number above 0, and for another number of durations.
    """
    per_s = numbers(rates)
    durations = [float(each) for each in seconds.split(",")]
    if min(durations) <= 0:
        raise ValueError(f"--seconds must be above 0, got {seconds}")
    if len(durations) == 1:
        durations *= len(per_s)
    if len(durations) != len(per_s):
        raise ValueError(f"--seconds must be one duration or one for each of {len(per_s)} rates, got {len(durations)}")
    return list(zip(per_s, durations, strict=True))


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().replace("\n", "; ")


def _gpu_memory_mb() -> int:
    """Memory in use, by all processes, on the first GPU that this process may use."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    query = ["nvidia-smi", "-i", first, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return int(answer[0]) if answer else 0


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
