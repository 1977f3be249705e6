"""Step: plots the losses of a run; needs matplotlib. `python -m train.plots LOGS OUT`

LOGS: a folder with the steps' .jsonl files, or the archive written by train.collect. Writes OUT/voice_STEP.svg.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entries = list[dict[str, Any]]
_DECIMALS = re.compile(r"(\d\.\d)\d+(?=[ \n])")
"""Coordinates; what is behind their first decimal cannot be seen."""


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One set of axes: its title, and the labels of the logged values on it."""

    title: str
    values: dict[str, str]


FIGURES: dict[str, tuple[PlotPanel, ...]] = {
    "codes": (
        PlotPanel("error of the log-mel spectrum", {"mel": "mean distance"}),
        PlotPanel("phones recognised from the first code", {"phones_right": "share of 20 ms hops"}),
    ),
    "decoder": (
        PlotPanel("error of spectrum and envelope", {"spectral": "log-mel spectrum", "envelope": "envelope"}),
        PlotPanel(
            "adversarial losses",
            {
                "discriminators": "discriminators",
                "adversarial": "generator, scores",
                "feature_matching": "generator, features",
            },
        ),
    ),
    "talker": (
        PlotPanel(
            "loss of the first code",
            {"first": "training, corrupted history", "unseen_first": "held-out text, true history"},
        ),
        PlotPanel(
            "first code right",
            {"right": "training, corrupted history", "unseen_right": "held-out text, true history"},
        ),
        PlotPanel(
            "loss of the other codes",
            {"residual": "training, corrupted history", "unseen_residual": "held-out text, true history"},
        ),
        PlotPanel("hours of speech so far", {"hours": "hours"}),
    ),
}


def read_logs(source: Path) -> dict[str, Entries]:
    """Entries of the logs, by step."""
    if source.is_dir():
        texts = {path.stem: path.read_text(encoding="utf-8") for path in source.glob("*.jsonl")}
    else:
        with tarfile.open(source) as archive:
            members = [member for member in archive.getmembers() if member.name.endswith(".jsonl")]
            texts = {Path(member.name).stem: _text(archive, member) for member in members}
    return {step: [json.loads(line) for line in text.splitlines()] for step, text in texts.items()}


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    return "" if file is None else file.read().decode()


def curve(entries: Entries, value: str) -> tuple[list[float], list[float]]:
    """Seconds since the start of training, and the values, of the entries that have both.

    Seconds continue over runs in the same log that started from the weights of the previous one.
    """
    seconds, values, before, last = [], [], 0.0, 0.0
    for entry in entries:
        if "seconds" not in entry:
            continue
        if entry["seconds"] < last:
            before += last
        last = entry["seconds"]
        if value in entry:
            seconds.append(before + last)
            values.append(entry[value])
    return seconds, values


def draw(step: str, entries: Entries, out: Path) -> Path:
    """Draw the figure of a step; returns its file."""
    import matplotlib

    matplotlib.use("svg")
    # The salt makes the output reproducible; letters are smaller than their outlines.
    matplotlib.rcParams |= {"svg.hashsalt": step, "svg.fonttype": "none", "path.simplify_threshold": 0.5}
    import matplotlib.pyplot as plt

    panels = FIGURES[step]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3), squeeze=False, layout="constrained")
    for axis, panel in zip(axes[0], panels, strict=True):
        for value, name in panel.values.items():
            axis.plot(*curve(entries, value), label=name, linewidth=1.2)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel("seconds", fontsize=9)
        axis.grid(alpha=0.3)
        if len(panel.values) > 1:
            axis.legend(fontsize=8)
    path = out / f"voice_{step}.svg"
    figure.savefig(path, metadata={"Date": None})
    path.write_text(_DECIMALS.sub(r"\1", path.read_text("utf-8")), "utf-8")
    plt.close(figure)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    for step, entries in read_logs(args.logs).items():
        if step in FIGURES:
            print(draw(step, entries, args.out))


if __name__ == "__main__":
    main()
