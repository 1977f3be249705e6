"""`voxgate bench gpu`: what one GPU carries, with random weights of the published sizes, through a real socket.

Random weights are as fast as real ones; what they say is noise. Every utterance is cut at a number of frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from .bench_local import gateway
from .listeners import Heard, Plan, play_in_processes
from .load.plots import COLOURS, line_plot
from .process_tree import tree_usage
from .random_checkpoint import write_random_checkpoint

TEXT = "The bakery on the corner sells fresh bread every morning, and the coffee is very good."
UTTERANCE_FRAMES = 63
"""Five seconds."""
LONG_FRAMES = 150
"""Twelve seconds, for listeners who are all there at once."""
LISTENERS_ARRIVE_S = 4.0
HEADINGS = (
    "| load | said | failed | first sample p50 / p95 / p99 ms | underruns at 0 / 80 / 200 ms | audio s/s | cores |"
)
PARTS = ("predictor", "codec", "talker")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default="0.6B,1.7B", help="published sizes to measure (default: %(default)s)")
    parser.add_argument("--rates", default="1,10,20,40,60", help="utterances a second (default: %(default)s)")
    parser.add_argument("--listeners", default="64,128,192,256", help="listeners at once (default: %(default)s)")
    parser.add_argument("--unpaced", default="64,256", help="utterances at once, as fast as it goes")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each rate (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=320, help="talker slots of the gateway (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=6, help="processes that listen (default: %(default)s)")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts of a step to time (default: %(default)s)")
    parser.add_argument("--checkpoints", type=Path, help="folder to keep the random checkpoints in")
    parser.add_argument("--serve", default="", metavar="FLAGS", help="further flags for the gateway")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the steps' times there, as SVG")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def run(parsed: argparse.Namespace) -> int:
    if shutil.which("nvidia-smi") is None:
        print("voxgate bench gpu: there is no NVIDIA GPU here", file=sys.stderr)
        return 1
    report = Report(_gpu(), date.today().isoformat(), " ".join(sys.argv[1:]))
    with tempfile.TemporaryDirectory(prefix="voxgate-bench-") as name:
        for size in filter(None, parsed.sizes.split(",")):
            folder = (parsed.checkpoints or Path(name)) / size
            if not folder.exists():
                _say(f"{size}: making a checkpoint")
                write_random_checkpoint(folder, size, device="cuda")
            result = SizeResult(size)
            report.sizes.append(result)
            _measure(parsed, folder, result)
            if parsed.json is not None:
                # Written as it grows: what was measured is not lost with what fails later.
                parsed.json.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
            if parsed.plot is not None:
                parsed.plot.write_text(step_plot(result), encoding="utf-8")
    print("\n".join(table(report)))
    return 0


@dataclass(slots=True)
class LoadRow:
    """What was heard under one load; times in ms. `underruns`: utterances with any, by the player's start buffer."""

    load: str
    utterances: int
    failed: int
    first_ms: dict[str, float] = field(default_factory=dict)
    server_ms: dict[str, float] = field(default_factory=dict)
    underruns: dict[str, int] = field(default_factory=dict)
    audio_s_per_s: float = 0.0
    cpu_cores: float = 0.0
    cpu_ms_per_audio_s: float = 0.0
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SizeResult:
    size: str
    parts: dict[str, Any] = field(default_factory=dict)
    ready_s: float = 0.0
    gpu_memory_mb: int = 0
    rows: list[LoadRow] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    gpu: str
    day: str
    command: str
    sizes: list[SizeResult] = field(default_factory=list)


def _measure(parsed: argparse.Namespace, folder: Path, result: SizeResult) -> None:
    for part in filter(None, parsed.parts.split(",")):
        finished = subprocess.run(
            [sys.executable, "-m", "voxgate.cli.gpu_parts", str(folder), part], stdout=subprocess.PIPE, check=False
        )
        # The talker's libraries may print before it.
        lines = finished.stdout.decode().strip().splitlines()
        result.parts[part] = json.loads(lines[-1]) if finished.returncode == 0 and lines else None
        _say(f"{result.size}: {part} {result.parts[part]}")
    if parsed.rates or parsed.listeners or parsed.unpaced:
        asyncio.run(_serve(parsed, folder, result))


async def _serve(parsed: argparse.Namespace, folder: Path, result: SizeResult) -> None:
    began = time.monotonic()
    flags = ["--checkpoint", str(folder), "--slots", str(parsed.slots), "--sockets", "4000", *parsed.serve.split()]
    async with gateway(flags) as (pid, url):
        result.ready_s = round(time.monotonic() - began, 1)
        _say(f"{result.size}: ready after {result.ready_s:.1f} s")

        async def load(name: str, rate: float, seconds: float, frames: int, pacing: str = "playback") -> None:
            clients = min(parsed.clients, max(1, int(rate)))
            plans = [
                Plan(url, TEXT, rate / clients, seconds, frames, number, pacing, steady=name.startswith("all"))
                for number in range(clients)
            ]
            before, since = tree_usage(pid).cpu_s, time.monotonic()
            heard = await play_in_processes(plans)
            row = _row(name, heard, tree_usage(pid).cpu_s - before, time.monotonic() - since)
            result.rows.append(row)
            _say(f"{result.size}: {row}")

        await load("warm-up", 4, 2, 12)
        result.rows.clear()
        for rate in _numbers(parsed.rates):
            await load(f"{rate}/s", rate, parsed.seconds, UTTERANCE_FRAMES)
        for count in _numbers(parsed.listeners):
            await load(f"{count} listeners", count / LISTENERS_ARRIVE_S, LISTENERS_ARRIVE_S, LONG_FRAMES)
        for count in _numbers(parsed.unpaced):
            await load(f"all {count} unpaced", count * 2, 0.5, LONG_FRAMES, "none")
        result.gpu_memory_mb = _gpu_memory_mb()


def _row(name: str, heard: list[Heard], cpu_s: float, seconds: float) -> LoadRow:
    good = [row for row in heard if row.error is None and row.first_ms is not None]
    row = LoadRow(name, len(heard), len(heard) - len(good))
    row.errors = sorted({one.error for one in heard if one.error})[:3]
    if good:
        span_s = max(one.ended_s for one in good) - min(one.began_s for one in good)
        audio_s = sum(one.audio_s for one in good)
        row.first_ms = quantiles([one.first_ms for one in good if one.first_ms is not None])
        row.server_ms = quantiles([one.server_ms for one in good if one.server_ms is not None])
        row.underruns = {ms: sum(one.underruns[ms] > 0 for one in good) for ms in good[0].underruns}
        row.audio_s_per_s = round(audio_s / span_s, 1)
        row.cpu_cores = round(cpu_s / seconds, 2)
        row.cpu_ms_per_audio_s = round(1000 * cpu_s / audio_s, 1)
    return row


def quantiles(values: list[float]) -> dict[str, float]:
    """p50, p95, p99 and the largest, rounded; of few values the higher quantiles are the largest one."""
    if not values:
        return {}
    ordered = sorted(values)
    at = {f"p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 95, 99)}
    return {name: round(value, 1) for name, value in (at | {"max": ordered[-1]}).items()}


def table(report: Report) -> list[str]:
    """The figures as Markdown."""
    lines = [f"{report.gpu}, {report.day}, `voxgate {report.command}`", ""]
    for result in report.sizes:
        lines += [f"**{result.size}**: ready after {result.ready_s} s, {result.gpu_memory_mb} MB of GPU memory", ""]
        for part, times in result.parts.items():
            shown = "failed" if times is None else ", ".join(f"{rows}: {ms}" for rows, ms in times.items())
            lines.append(f"- {part}, ms: {shown}")
        lines += ["", HEADINGS, "|---|---|---|---|---|---|---|"]
        for row in result.rows:
            first = " / ".join(str(row.first_ms.get(name, "-")) for name in ("p50", "p95", "p99"))
            late = " / ".join(str(count) for count in row.underruns.values())
            cells = (row.load, row.utterances, row.failed, first, late, row.audio_s_per_s, row.cpu_cores)
            lines.append(f"| {' | '.join(map(str, cells))} |")
        lines.append("")
    return lines


def step_plot(result: SizeResult) -> str:
    """A step's time by its utterances, of the whole talker and of the code predictor in it: an SVG document."""
    shown = {"whole talker": result.parts.get("talker"), "code predictor": result.parts.get("predictor")}
    series = {
        name: [(float(rows), ms) for rows, ms in times.items() if rows.isdigit()]
        for name, times in shown.items()
        if times
    }
    figure = line_plot(f"A talker step, {result.size}", "utterances in the step", "ms", series)
    drawing = figure[figure.index("<svg ") : figure.index("</svg>")]
    names = "".join(
        f'<text x="70" y="{28 + 16 * place}" style="fill:{colour}">{name} (ms)</text>'
        for place, (name, colour) in enumerate(zip(series, COLOURS, strict=False))
    )
    style = "<style>text{font:11px sans-serif;fill:#444}.grid{stroke:#ddd}</style>"
    head, _, rest = drawing.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return f'{head}>{style}<rect width="100%" height="100%" fill="white"/>{rest}{names}</svg>\n'


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().replace("\n", "; ")


def _gpu_memory_mb() -> int:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()[0])


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
