"""A load test as one HTML file that needs nothing else: figures, plots, and every step in full."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence

from .plots import line_plot
from .sample import BUFFERS_MS
from .show import bar_text, spread_text
from .stats import Bar, StepFigures

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ink: CanvasText }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.most { font-size: 2.4rem; font-weight: 600; line-height: 1 }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.plots { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)) }
figure { margin: 0 } figcaption { font-weight: 600 } figcaption small { font-weight: 400; opacity: .7 }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: var(--ink) }
.grid { stroke: var(--line) } .mark { stroke: #dc2626; stroke-dasharray: 5 4 }
ul { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; margin: 0; padding: 0 0 0 3.4rem }
li span { border-radius: 50%; display: inline-block; height: .6rem; margin-right: .35rem; width: .6rem }
.warn { border-left: 3px solid #d97706; padding-left: .7rem }
"""


def html_report(title: str, facts: Mapping[str, str], steps: Sequence[StepFigures], bar: Bar, most: int | None) -> str:
    """`facts`: what was tested, where and how, as the reader needs it to repeat the test."""
    ordered = sorted(steps, key=lambda step: step.size)
    parts = [f"<h1>{html.escape(title)}</h1>"]
    if most is not None:
        parts.append(
            f'<p><span class="most">{most}</span> streams without an underrun {html.escape(bar_text(bar))}</p>'
        )
    parts.append(_table(("", ""), [(name, value) for name, value in facts.items()]))
    parts += [
        f'<p class="warn">{html.escape(step.load)}: the client itself could not keep time; do not trust this step.</p>'
        for step in steps
        if not step.trustworthy
    ]
    parts.append(f'<h2>Plots</h2><div class="plots">{"".join(_plots(ordered, bar))}</div>')
    parts.append("<h2>Every step</h2>" + _table(tuple(_COLUMNS), [_cells(step, bar) for step in steps]))
    parts.append(f"<p>Times as p50/p95/p99/most. {_EXPLAINED}</p>")
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>'
    )


_EXPLAINED = (
    "First audio counts from the first text sent; audible is the first sound that is not silence. Uneven are streams"
    " that ran dry at least once, for players that start after so much buffer; who read slowly on purpose, interrupted"
    " or left is not counted among them. Cancel is from the interrupt to the server's word that nothing more comes."
)
_COLUMNS = (
    "load",
    "verdict",
    "utterances",
    "ends",
    "connect",
    "first audio",
    "audible",
    "after 1st sentence",
    "queue",
    "gap",
    "cancel",
    *(f"uneven at {buffer_ms} ms" for buffer_ms in BUFFERS_MS),
    "audio s/s",
    "server cores",
    "server MB",
)


def _cells(step: StepFigures, bar: Bar) -> tuple[str, ...]:
    return (
        step.load,
        bar.verdict(step) or "carried",
        str(step.utterances),
        ", ".join(f"{count} {outcome}" for outcome, count in step.outcomes.items()),
        *(spread_text(spread) for spread in (step.connect, step.first_byte, step.first_audible, step.after_sentence)),
        *(spread_text(spread) for spread in (step.queue, step.gap, step.cancel)),
        *(f"{step.uneven[buffer_ms]} of {step.listened}" for buffer_ms in BUFFERS_MS),
        f"{step.audio_per_s:.2f}",
        "-" if step.server_cores is None else f"{step.server_cores:.2f}",
        "-" if step.server_memory_mb is None else f"{step.server_memory_mb:.0f}",
    )


def _plots(steps: Sequence[StepFigures], bar: Bar) -> list[str]:
    x = "streams" if steps and "stream" in steps[0].load else "utterances per second"

    def against(figure: Callable[[StepFigures], float]) -> list[tuple[float, float]]:
        return [(step.size, figure(step)) for step in steps]

    first_audio = {
        "p50": against(lambda step: step.first_byte.p50),
        "p95": against(lambda step: step.first_byte.p95),
        "audible, p95": against(lambda step: step.first_audible.p95),
    }
    gaps = {"p99": against(lambda step: step.gap.p99), "most": against(lambda step: step.gap.most)}
    uneven = {
        f"{buffer_ms} ms": [(step.size, 100 * step.uneven[buffer_ms] / max(1, step.listened)) for step in steps]
        for buffer_ms in BUFFERS_MS
    }
    turned_away = against(lambda step: 100 * sum(step.refused.values()) / max(1, step.utterances))
    return [
        line_plot("Time to first audio", x, "ms", first_audio, bar.first_audio_p95_ms),
        line_plot("Streams with an underrun", x, "% by start buffer", uneven),
        line_plot("Gap between messages", x, "ms", gaps),
        line_plot("Refused", x, "% of utterances", {"refused": turned_away}),
        line_plot("Audio", x, "seconds per second", {"arrived": against(lambda step: step.audio_per_s)}),
    ]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(headings) else ''}<tbody>{body}</tbody></table>"
