"""What `voxgate bench gpu` found: as JSON, as Markdown, and as drawings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from voxgate.loadtest.plots import COLOURS, Points, line_plot
from voxgate.loadtest.results import BUFFERS_MS, StepFigures, to_json

HEADINGS = (
    "load", "said", "refused", "failed", "first sample p50 / p95 / p99 ms",
    "underruns at " + " / ".join(map(str, BUFFERS_MS)) + " ms", "longest gap ms", "audio s/s", "cores",
    "CPU ms / audio s",
)  # fmt: skip  # one row
BUSY = "the client could not keep time"


@dataclass(slots=True)
class SizeResult:
    """`parts`: by part, ms by batch; `loads`: through the socket of so many `gateways`, in the order they were run."""

    size: str
    parts: dict[str, Any] = field(default_factory=dict)
    ready_s: float = math.nan
    gpu_memory_mb: int = 0
    loads: list[StepFigures] = field(default_factory=list)
    gateways: int = 1


@dataclass(slots=True)
class GpuReport:
    gpu: str
    day: str
    command: str
    cores: int = 0
    sizes: list[SizeResult] = field(default_factory=list)

    def as_json(self) -> str:
        return json.dumps(json.loads(to_json(asdict(self))), indent=1) + "\n"


def table(report: GpuReport) -> list[str]:
    """The figures as Markdown."""
    lines = [f"{report.gpu}, {report.cores} cores, {report.day}, `voxgate {report.command}`", ""]
    for result in report.sizes:
        name = f"{result.size}, {result.gateways} gateways" if result.gateways > 1 else result.size
        lines += [f"**{name}**: ready after {result.ready_s} s, {result.gpu_memory_mb} MB of GPU memory", ""]
        lines += [f"- {line}" for part, figures in result.parts.items() for line in _part(part, figures)]
        if result.loads:
            lines += ["", _row(HEADINGS), _row(["---"] * len(HEADINGS))]
            lines += [_row(_cells(step)) for step in result.loads]
        lines.append("")
    return lines


def _part(name: str, figures: Any) -> Iterable[str]:
    """A line for each list of figures in it; `figures` is None where the part failed."""
    if figures is None:
        yield f"{name}: failed"
    elif nested := {inner: each for inner, each in figures.items() if isinstance(each, Mapping)}:
        for inner, each in nested.items():
            yield from _part(inner if name == "engine" else f"{name}, {inner}", each)
    else:
        unit = "share" if name.startswith("profile") else "ms"
        yield f"{name}, {unit}: " + ", ".join(f"{key}: {value}" for key, value in figures.items())


def _cells(step: StepFigures) -> list[str]:
    first = (step.first_byte.p50, step.first_byte.p95, step.first_byte.p99)
    cores = math.nan if step.server_cores is None else step.server_cores
    return [
        step.load if step.trustworthy else f"{step.load} ({BUSY})",
        str(step.utterances),
        str(sum(step.refused.values())),
        str(sum(step.failed.values())),
        " / ".join(map(_number, first)),
        " / ".join(str(step.uneven[ms]) for ms in BUFFERS_MS),
        _number(step.gap.most),
        f"{step.audio_per_s:.0f}",
        _number(cores),
        _number(1000 * cores / step.audio_per_s if step.audio_per_s else math.nan),
    ]


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def step_plot(result: SizeResult) -> str:
    """A step's time by its utterances, of the whole talker and of what is in it: an SVG document."""
    engine = result.parts.get("engine") or {}
    shown = {
        "whole talker": engine.get("talker"),
        "backbone": engine.get("backbone"),
        "code predictor": result.parts.get("predictor"),
    }
    series = {name: [(float(rows), ms) for rows, ms in times.items()] for name, times in shown.items() if times}
    return document(f"A talker step, {result.size}", "utterances in the step", "ms", series)


def latency_plot(result: SizeResult) -> str:
    """First sample through the socket by utterances a second: an SVG document."""
    rates = [step for step in result.loads if step.load.endswith("/s") and not math.isnan(step.first_byte.p50)]
    series = {name: [(step.size, getattr(step.first_byte, name)) for step in rates] for name in ("p50", "p95", "p99")}
    return document(f"First sample, {result.size}", "utterances a second", "ms", series)


def gateways_plot(results: Iterable[SizeResult]) -> str:
    """The most audio seconds that came in a second, by gateways: an SVG document."""
    tried = [each for each in results if each.loads]
    most = sorted((float(each.gateways), max(load.audio_per_s for load in each.loads)) for each in tried)
    return document("Behind HAProxy, a GPU each", "gateways", "audio s/s", {"as fast as it goes": most})


def document(title: str, x_label: str, y_label: str, series: Mapping[str, Points]) -> str:
    """One drawing that stands by itself, its lines named in it; empty where there is nothing to draw."""
    figure = line_plot(title, x_label, y_label, series)
    if not figure:
        return ""
    drawing = figure[figure.index("<svg ") : figure.index("</svg>")]
    names = "".join(
        f'<text x="70" y="{28 + 16 * place}" style="fill:{colour}">{name} ({y_label})</text>'
        for place, (name, colour) in enumerate(zip(series, COLOURS, strict=False))
    )
    style = "<style>text{font:11px sans-serif;fill:#444}.grid{stroke:#ddd}</style>"
    head, _, rest = drawing.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return f'{head}>{style}<rect width="100%" height="100%" fill="white"/>{rest}{names}</svg>\n'
