"""`voxgate bench gpu`: what one GPU carries, with random weights of the published sizes, through a real socket.

Random weights are as fast as real ones; what they say is noise. Every utterance is cut at a number of frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import date
from pathlib import Path
from typing import Any

from voxgate.loadtest.plan import LoadStep
from voxgate.loadtest.process_tree import tree_cpu_s
from voxgate.loadtest.processes import run_step
from voxgate.loadtest.results import StepFigures, figures
from voxgate.loadtest.targets.connection import TargetOptions

from ..fleet import Fleet, GatewayStartError, balanced, gateways, on_cores, one_gateway
from ..random_checkpoint import write_random_checkpoint
from .report import GpuReport, SizeResult, gateways_plot, latency_plot, step_plot, table

UTTERANCE_FRAMES = 63
"""Five seconds."""
LISTENER_FRAMES = 150
"""Twelve seconds, for listeners who are all there at once."""
LISTENERS_ARRIVE_S = 6.0
LEAST_UTTERANCES = 30
"""At a low rate utterances come until there are so many, so that the twentieth part of them is more than one."""
UNPACED_S = 20.0
"""How long new utterances are begun where each is made as fast as it goes; the last ones, ever fewer, weigh little."""
BUFFER_MS = 200
"""A step of listeners is carried when no player with this much of a start buffer runs dry."""
PART_TIMEOUT_S = 240.0
PARTS = ("layers", "predictor", "codec", "engine")
CLIENT_SHARE = 3 / 8
"""Of the cores, for the listeners; a machine with few leaves it to its scheduler."""
FEW_CORES = 8


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sizes", default="0.6B,1.7B", help="published sizes to measure (default: %(default)s)")
    add(
        "--parts",
        default=",".join(PARTS),
        help="what to time without a socket; also engine-vllm, first (default: %(default)s)",
    )
    add("--rates", default="1,10,20,40,60", help="utterances a second (default: %(default)s)")
    add("--seconds", type=float, default=10.0, help="of each rate, or until some have come (default: %(default)s)")
    add(
        "--listeners",
        default="128,256,384",
        help="listeners at once, until one hears a gap; then once between (default: %(default)s)",
    )
    add("--unpaced", default="64,256", help="utterances at once, as fast as it goes (default: %(default)s)")
    add("--slots", type=int, default=384, help="talker slots of the gateway (default: %(default)s)")
    add("--workers", help="processes of each gateway that serve sockets (default: its own choice)")
    add("--serve", default="", metavar="FLAGS", help="further flags for the gateway")
    add(
        "--replicas",
        default="",
        metavar="N,N,...",
        help="gateways behind HAProxy, each on a GPU of its own and with all of the loads; one number after the other",
    )
    add("--clients", type=int, help="processes that listen (default: one for each of their cores)")
    add("--checkpoints", type=Path, help="folder to keep the random checkpoints in")
    add("--plot", type=Path, metavar="FOLDER", help="draw steps and latency there, as SVG")
    add("--json", type=Path, metavar="FILE", help="write the figures there as well, as they come")


def run(parsed: argparse.Namespace) -> int:
    if shutil.which("nvidia-smi") is None:
        print("voxgate bench gpu: there is no NVIDIA GPU here", file=sys.stderr)
        return 1
    report = GpuReport(_gpu(), date.today().isoformat(), " ".join(sys.argv[1:]), len(os.sched_getaffinity(0)))

    def keep() -> None:
        """Written as it grows: what was measured is not lost with what fails later."""
        if parsed.json is not None:
            parsed.json.write_text(report.as_json(), encoding="utf-8")

    failed = False
    with tempfile.TemporaryDirectory(prefix="voxgate-bench-") as name:
        for size in filter(None, parsed.sizes.split(",")):
            folder = (parsed.checkpoints or Path(name)) / size
            if not folder.exists():
                say(f"{size}: making a checkpoint")
                write_random_checkpoint(folder, size, device="cuda")
            counts = numbers(parsed.replicas) or [1]
            results = [SizeResult(size, gateways=count) for count in counts]
            report.sizes += results
            time_parts(folder, [part for part in parsed.parts.split(",") if part], results[0], keep)
            try:
                if parsed.rates or parsed.listeners or parsed.unpaced:
                    asyncio.run(_serve(parsed, folder, results, keep))
            except GatewayStartError as failure:
                print(f"voxgate bench gpu: {failure}", file=sys.stderr)
                failed = True
            keep()
            if parsed.plot is not None:
                draw(parsed.plot, results)
    print("\n".join(table(report)))
    return int(failed)


def draw(folder: Path, results: Sequence[SizeResult]) -> None:
    """Whatever can be drawn of a size's figures, into `folder`."""
    first = results[0]
    drawings = {"step": step_plot(first), "latency": latency_plot(first)}
    if len(results) > 1:
        drawings["gateways"] = gateways_plot(results)
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        if drawing:
            (folder / f"gpu_{name}_{first.size}.svg").write_text(drawing, encoding="utf-8")


def time_parts(folder: Path, parts: Sequence[str], result: SizeResult, keep: Callable[[], None]) -> None:
    """Each in a process of its own, which leaves no memory taken; the last line it printed counts, however it ended."""
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
        say(f"{result.size}: {part} ({time.monotonic() - began_s:.0f} s) {result.parts[part]}")
        keep()


def last_document(output: str) -> Any:
    """The last line that is a JSON object; what else libraries print is passed over. None without any."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


async def _serve(
    parsed: argparse.Namespace, folder: Path, results: Sequence[SizeResult], keep: Callable[[], None]
) -> None:
    """Fill in `results`, each with its number of gateways; all of them are started once."""
    began_s = time.monotonic()
    slots = str(parsed.slots)
    # What is asked for is let in: how many are carried is to be heard, not foretold.
    flags = ["--checkpoint", str(folder), "--slots", slots, "--active-utterances", slots, "--sockets", "8000"]
    flags += parsed.serve.split()
    if parsed.workers is not None:
        flags += ["--workers", parsed.workers]
    servers, clients = split_cores(sorted(os.sched_getaffinity(0)))

    async def put_loads(fleet: Fleet, result: SizeResult) -> None:
        result.ready_s = ready_s
        with on_cores(clients):
            loads = FleetLoads(fleet, parsed.clients or len(clients), result.loads, keep, result.gateways)
            await loads.warm_up()
            for rate in numbers(parsed.rates):
                await loads.arrivals(rate, parsed.seconds)
            await loads.most_listeners(numbers(parsed.listeners))
            for count in numbers(parsed.unpaced):
                await loads.unpaced(count)
        result.gpu_memory_mb = _gpu_memory_mb()

    async with AsyncExitStack() as stack:
        with on_cores(servers):
            if parsed.replicas:
                most = max(result.gateways for result in results)
                running = await stack.enter_async_context(gateways(most, flags))
            else:
                alone = await stack.enter_async_context(one_gateway(flags))
        ready_s = round(time.monotonic() - began_s, 1)
        say(f"{results[0].size}: ready after {ready_s} s")
        if not parsed.replicas:
            await put_loads(Fleet(alone.url, [alone.pid]), results[0])
            return
        for result in results:
            async with AsyncExitStack() as front:
                with on_cores(servers):
                    fleet = await front.enter_async_context(balanced(running[: result.gateways]))
                await put_loads(fleet, result)


class FleetLoads:
    """Puts loads on a fleet, one after another, `times` as large; adds what was heard to `rows`, then calls `keep`."""

    def __init__(
        self, fleet: Fleet, processes: int, rows: list[StepFigures], keep: Callable[[], None], times: int = 1
    ) -> None:
        self._fleet, self._processes, self._rows, self._keep, self._times = fleet, processes, rows, keep, times

    async def warm_up(self) -> None:
        await self._run("warm-up", rate_per_s=4.0, seconds=1.0, frames=12)
        self._rows.clear()

    async def arrivals(self, rate_per_s: float, seconds: float) -> None:
        """Utterances of five seconds that arrive by themselves, a Poisson process that waits for nobody."""
        rate_per_s *= self._times
        seconds = max(seconds, LEAST_UTTERANCES / rate_per_s)
        await self._run(f"{rate_per_s:g}/s", rate_per_s=rate_per_s, seconds=seconds, frames=UTTERANCE_FRAMES)

    async def most_listeners(self, counts: Sequence[int]) -> int:
        """Ever more listeners of each gateway, until too many; then once between. The most that were carried."""
        best = 0
        for count in counts:
            if not await self._listeners(count):
                between = (best + count) // 2
                if best and await self._listeners(between):
                    best = between
                break
            best = count
        return best

    async def unpaced(self, count: int) -> None:
        """So many at once, one utterance after the other, each made as fast as it goes."""
        count *= self._times
        await self._run(
            f"{count} unpaced", streams=count, seconds=UNPACED_S, frames=LISTENER_FRAMES, spread_s=0.5, paced=False
        )

    async def _listeners(self, count: int) -> bool:
        arrive_s = LISTENERS_ARRIVE_S
        count *= self._times
        step = await self._run(
            f"{count} listeners", streams=count, seconds=arrive_s, frames=LISTENER_FRAMES, spread_s=arrive_s
        )
        return not (step.refused or step.failed or step.uneven[BUFFER_MS])

    async def _run(self, name: str, *, frames: int, paced: bool = True, **load: Any) -> StepFigures:
        options = TargetOptions(self._fleet.url, frames=frames, paced=paced)
        cpu_s, began_s = self._cpu_s(), time.monotonic()
        plan = LoadStep("voxgate", options, sentences=1, words_per_s=0, seed=1 + len(self._rows), **load)
        heard = await run_step(plan, self._processes, lambda _: None)
        cores = (self._cpu_s() - cpu_s) / (time.monotonic() - began_s)
        step = figures(name, plan.streams or plan.rate_per_s, heard, (cores, 0.0))
        self._rows.append(step)
        self._keep()
        first = f"{step.first_byte.p50:.1f}/{step.first_byte.p95:.1f}/{step.first_byte.p99:.1f}"
        told = f"{step.server.p50:.0f}/{step.server.p95:.0f}"
        say(
            f"{name}: {step.utterances} said, first {first} ms (server: {told}), uneven {step.uneven}, "
            f"{step.audio_per_s:.0f} audio s/s, {cores:.1f} cores, refused {step.refused}, failed {step.failed}, "
            f"client {heard.client_cpu_s:.1f} s CPU, {step.client_lag_p99_ms:.1f} ms late"
        )
        return step

    def _cpu_s(self) -> float:
        return sum(tree_cpu_s(pid) for pid in self._fleet.pids)


def split_cores(cores: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Cores for the servers and for the listeners: apart, unless there are few."""
    if len(cores) <= FEW_CORES:
        return cores, cores
    clients = int(len(cores) * CLIENT_SHARE)
    return cores[:-clients], cores[-clients:]


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().replace("\n", "; ")


def _gpu_memory_mb() -> int:
    """Used by everybody, on the first GPU that is ours."""
    ours = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    query = ["nvidia-smi", "-i", ours, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return int(answer[0]) if answer else 0


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
