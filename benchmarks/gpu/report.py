"""Reports of `voxgate bench gpu`: JSON, Markdown and plots."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from voxgate.loadtest.plots import COLOURS, Points, line_plot
from voxgate.loadtest.results import BUFFERS_MS, StepFigures, to_json

from .clone import comparisons

HEADINGS = (
    "load", "utterances", "refused", "failed", "first audio p50 / p95 / p99 ms",
    "underruns at " + " / ".join(map(str, BUFFERS_MS)) + " ms", "longest gap ms", "audio s/s", "cores",
    "CPU ms / audio s",
)  # fmt: skip  # one row
AUDIO_PER_S = "audio s/s"
"""Ends the name of figures in this unit."""
OVERLOADED = "the client was overloaded"


@dataclass(slots=True)
class SizeResult:
    """`parts`: by part, milliseconds by batch size. `loads`: steps through the sockets of `gateways`, in order."""

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


def markdown(report: GpuReport) -> list[str]:
    """The figures as lines of Markdown."""
    lines = [f"{report.gpu}, {report.cores} cores, {report.day}, `voxgate {report.command}`", ""]
    for result in report.sizes:
        name = f"{result.size}, {result.gateways} gateways" if result.gateways > 1 else result.size
        lines += [f"**{name}**: ready after {result.ready_s} s, {result.gpu_memory_mb} MB of GPU memory", ""]
        lines += [f"- {line}" for part, figures in result.parts.items() for line in _part(part, figures)]
        if result.loads:
            lines += ["", _row(HEADINGS), _row(["---"] * len(HEADINGS))]
            lines += [_row(_cells(step)) for step in result.loads]
            if compared := list(comparisons(result.loads)):
                lines += ["", *(f"- {line}" for line in compared)]
        lines.append("")
    return lines


def _part(name: str, figures: Any) -> Iterable[str]:
    """A line for each group of figures of a part; `figures` is None where the part failed."""
    if figures is None:
        yield f"{name}: failed"
    elif nested := {inner: each for inner, each in figures.items() if isinstance(each, Mapping)}:
        for inner, each in nested.items():
            yield from _part(inner if name == "engine" else f"{name}, {inner}", each)
    else:
        unit = "share" if name.startswith("profile") else "ms"
        title = name if name.endswith(AUDIO_PER_S) else f"{name}, {unit}"
        yield f"{title}: " + ", ".join(f"{key}: {value}" for key, value in figures.items())


def _cells(step: StepFigures) -> list[str]:
    first = (step.first_byte.p50, step.first_byte.p95, step.first_byte.p99)
    cores = math.nan if step.server_cores is None else step.server_cores
    return [
        step.load if step.trustworthy else f"{step.load} ({OVERLOADED})",
        str(step.utterances),
        str(sum(step.refused.values())),
        str(sum(step.failed.values())),
        " / ".join(map(_number, first)),
        " / ".join(str(step.utterances_with_underruns[ms]) for ms in BUFFERS_MS),
        _number(step.gap.max),
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
    """Time of a talker step and of its parts by the number of utterances, as an SVG document."""
    engine = result.parts.get("engine") or {}
    shown = {
        "whole talker": engine.get("talker"),
        "backbone": engine.get("backbone"),
        "code predictor": result.parts.get("predictor"),
    }
    series = {name: [(float(rows), ms) for rows, ms in times.items()] for name, times in shown.items() if times}
    return document(f"A talker step, {result.size}", "utterances in the step", "ms", series)


def latency_plot(result: SizeResult) -> str:
    """Time to first audio by utterances per second, as an SVG document."""
    rates = [step for step in result.loads if step.load.endswith("/s") and not math.isnan(step.first_byte.p50)]
    series = {name: [(step.size, getattr(step.first_byte, name)) for step in rates] for name in ("p50", "p95", "p99")}
    return document(f"First audio, {result.size}", "utterances per second", "ms", series)


def gateways_plot(results: Iterable[SizeResult]) -> str:
    """Maximum of the audio received per second by the number of gateways, as an SVG document."""
    measured = [each for each in results if each.loads]
    maxima = sorted((float(each.gateways), max(load.audio_per_s for load in each.loads)) for each in measured)
    return document("Gateways behind HAProxy, one GPU each", "gateways", "audio s/s", {"maximum": maxima})


def document(title: str, x_label: str, y_label: str, series: Mapping[str, Points]) -> str:
    """A plot as a self-contained SVG document with a legend; empty where there is nothing to draw."""
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
