"""Draws an overload run: admitted and refused utterances, time to first audio, and underruns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .open_loop import OfferedLoad

WIDTH, LEFT, RIGHT = 840, 64, 20
PANEL, GAP, TOP = 150, 46, 56
EDGE = WIDTH - LEFT - RIGHT
BLUE, RED, GREY, INK = "#2b6cb0", "#c53030", "#a0aec0", "#2d3748"


def draw_overload(load: OfferedLoad, capacity_per_s: float, normal_ms: float) -> str:
    """An SVG of three panels over the same seconds."""
    admitted = [one for one in load.utterances if one.started_s is not None]
    refused = [one for one in load.utterances if one.started_s is None]
    seconds = load.bounds_s[-1]
    firsts = [(load.at_s(one), one.first_audio_ms) for one in admitted]
    underruns = [(load.at_s(one), one.playback.underruns(200)) for one in admitted]
    panels = [
        _Panel(0, "a second", seconds, 1.1 * max(_per_second(map(load.at_s, load.utterances)).values())),
        _Panel(1, "ms", seconds, 1.15 * max(normal_ms, *(ms for _, ms in firsts))),
        _Panel(2, "underruns", seconds, max(1.0, *(float(n) for _, n in underruns))),
    ]
    rates, waits, breaks = panels
    parts = [
        rates.frame("Utterances asked for: admitted (blue) and refused (red), with capacity (grey)", load.bounds_s),
        rates.line([(0, capacity_per_s), (seconds, capacity_per_s)], GREY),
        rates.steps(_per_second(map(load.at_s, admitted)), BLUE),
        rates.steps(_per_second(map(load.at_s, refused)), RED),
        waits.frame("Time to first audio of each admitted utterance, waiting for a slot included", load.bounds_s),
        waits.dots(firsts, BLUE),
        breaks.frame(f"Underruns of each admitted utterance: {sum(n for _, n in underruns)} in all", load.bounds_s),
        breaks.dots([point for point in underruns if not point[1]], BLUE),
        breaks.dots([point for point in underruns if point[1]], RED),
    ]
    height = TOP + 3 * (PANEL + GAP) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
        f'<text x="{LEFT}" y="24" font-size="15">Four times the load it can carry, from second'
        f" {load.bounds_s[1]:.0f} to {load.bounds_s[2]:.0f}</text>" + "".join(parts) + "</svg>\n"
    )


def _per_second(times_s: Iterable[float]) -> Counter[int]:
    return Counter(int(at_s) for at_s in times_s)


class _Panel:
    """One of three panels, counted from the top; `most` is the value at its upper edge."""

    def __init__(self, index: int, unit: str, seconds: float, most: float) -> None:
        self._top = TOP + index * (PANEL + GAP)
        self._unit, self._seconds, self._most = unit, seconds, most

    def x(self, at_s: float) -> float:
        return LEFT + EDGE * at_s / self._seconds

    def y(self, value: float) -> float:
        return self._top + PANEL * (1 - value / self._most)

    def frame(self, title: str, bounds_s: list[float]) -> str:
        begin, end = self.x(bounds_s[1]), self.x(bounds_s[2])
        ticks = "".join(
            f'<text x="{LEFT - 6}" y="{self.y(value) + 4:.0f}" text-anchor="end">{value:.0f}</text>'
            for value in (0, self._most / 2, self._most)
        )
        seconds = "".join(
            f'<text x="{self.x(at_s):.0f}" y="{self._top + PANEL + 15}" text-anchor="middle">{at_s} s</text>'
            for at_s in range(0, int(self._seconds) + 1, 10)
        )
        return (
            f'<rect x="{begin:.0f}" y="{self._top}" width="{end - begin:.0f}" height="{PANEL}" fill="#fff5f5"/>'
            f'<rect x="{LEFT}" y="{self._top}" width="{EDGE}" height="{PANEL}" fill="none" stroke="{GREY}"/>'
            f'<text x="{LEFT}" y="{self._top - 7}">{title}</text>'
            f'<text x="{LEFT - 6}" y="{self._top - 7}" text-anchor="end">{self._unit}</text>{ticks}{seconds}'
        )

    def line(self, points: list[tuple[float, float]], colour: str) -> str:
        path = " ".join(f"{self.x(at_s):.1f},{self.y(value):.1f}" for at_s, value in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'

    def steps(self, counts: Counter[int], colour: str) -> str:
        points = [(at_s + side, float(counts[at_s])) for at_s in range(int(self._seconds)) for side in (0, 1)]
        return self.line(points, colour)

    def dots(self, points: Iterable[tuple[float, float]], colour: str) -> str:
        """All points in one path: a circle for each would make the file ten times as large."""
        path = "".join(f"M{self.x(at_s):.1f} {self.y(value):.1f}h0" for at_s, value in points)
        stroke = f'stroke="{colour}" stroke-opacity="0.6" stroke-width="4" stroke-linecap="round"'
        return f'<path d="{path}" fill="none" {stroke}/>'
