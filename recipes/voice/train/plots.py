"""Step: the curves of a run as pictures (needs matplotlib). `python -m train.plots LOGS OUT`

LOGS: a folder with the steps' .jsonl files, or the archive that train.collect wrote. Writes OUT/voice_STEP.svg.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entries = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One set of axes: a title, and the logged values on it by what they are called there."""

    title: str
    values: dict[str, str]


PICTURES: dict[str, tuple[PlotPanel, ...]] = {
    "codes": (
        PlotPanel("error of the log-mel spectrum", {"mel": "mean distance"}),
        PlotPanel("phones known from the first code alone", {"phones_right": "share of 20 ms pieces"}),
    ),
    "decoder": (
        PlotPanel("error of spectrum and envelope", {"spectral": "log-mel spectrum", "envelope": "envelope"}),
        PlotPanel("judges", {"judges": "judges' own loss", "fooling": "fooling them", "likeness": "likeness to them"}),
    ),
    "talker": (
        PlotPanel(
            "loss of the first code",
            {"first": "in training, past disturbed", "unseen_first": "text never met, past as it was"},
        ),
        PlotPanel(
            "first code right",
            {"right": "in training, past disturbed", "unseen_right": "text never met, past as it was"},
        ),
        PlotPanel(
            "loss of the other codes",
            {"residual": "in training, past disturbed", "unseen_residual": "text never met, past as it was"},
        ),
        PlotPanel("hours of speech so far", {"hours": "hours"}),
    ),
}


def read_logs(source: Path) -> dict[str, Entries]:
    """The entries of each step's log, by step."""
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
    """Seconds since training began and the value, of the entries that have both.

    Where a later run went on from the weights of the one before, in the same log, its seconds count on from there.
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
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = step  # the same curves make the same file
    import matplotlib.pyplot as plt

    panels = PICTURES[step]
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
    plt.close(figure)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    for step, entries in read_logs(args.logs).items():
        if step in PICTURES:
            print(draw(step, entries, args.out))


if __name__ == "__main__":
    main()
