"""Line plots as SVG text that can be inlined into a page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
COLOURS = ("#2563eb", "#d97706", "#dc2626", "#059669", "#7c3aed")
Points = Sequence[tuple[float, float]]


def line_plot(title: str, x_label: str, y_label: str, series: Mapping[str, Points], mark_y: float | None = None) -> str:
    """A `<figure>` with one line for each of `series`, and a dashed line at `mark_y`. Leaves out points that are NaN.

    Returns an empty text when there are no points.
    """
    known = {name: [(x, y) for x, y in points if not math.isnan(y)] for name, points in series.items()}
    all_points = [point for points in known.values() for point in points]
    if not all_points:
        return ""
    x_ticks = sorted({x for x, _ in all_points})
    x_from, x_to = min(x_ticks), max(x_ticks)
    y_ticks = _ticks(max([y for _, y in all_points] + ([mark_y] if mark_y is not None else [])))

    def locate(x: float, y: float) -> tuple[float, float]:
        across = 0.5 if x_to == x_from else (x - x_from) / (x_to - x_from)
        down = 1 - y / y_ticks[-1]
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _TOP + down * (_HEIGHT - _TOP - _BOTTOM)

    label = html.escape(f"{title}: {y_label} by {x_label}")
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">']
    for tick in y_ticks:
        _, y = locate(x_from, tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in _thinned(x_ticks, 10):
        x, _ = locate(tick, 0)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    if mark_y is not None:
        _, y = locate(x_from, mark_y)
        parts.append(f'<path class="mark" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
    for colour, points in zip(COLOURS, known.values(), strict=False):
        located = [locate(x, y) for x, y in sorted(points)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in located)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in located]
    parts.append(
        f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(x_label)}</text>'
    )
    parts.append("</svg>")
    names = "".join(
        f'<li><span style="background:{colour}"></span>{html.escape(name)}</li>'
        for colour, name in zip(COLOURS, known, strict=False)
    )
    heading = f"{html.escape(title)} <small>{html.escape(y_label)}</small>"
    return f"<figure><figcaption>{heading}</figcaption>{''.join(parts)}<ul>{names}</ul></figure>"


def _ticks(maximum: float) -> list[float]:
    """About five round numbers from 0 to at least `maximum`."""
    if maximum <= 0:
        return [0.0, 1.0]
    raw = maximum / 4
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    return [round(index * step, 10) for index in range(math.ceil(maximum / step - 1e-9) + 1)]


def _thinned(values: Sequence[float], count: int) -> Sequence[float]:
    """At most `count` of the values, evenly spaced."""
    return values[:: max(1, -(-len(values) // count))]
