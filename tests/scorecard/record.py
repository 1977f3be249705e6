"""What remains of a run: one JSON line a row, and the card printed from the lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from .card import Figure, Row

Verdict = Literal["green", "red", "void"]


@dataclass(frozen=True)
class Record:
    row: str
    verdict: Verdict
    figures: dict[str, Figure]
    missed: list[str]
    commit: str
    seed: int
    tier: str
    scale: float
    timed: bool
    """Whether figures of time were judged."""
    seconds: float
    lateness_p99_ms: float | None
    """What the quiet gate measured."""
    began: str


def commit() -> str:
    """The commit of this tree, with a mark when the tree differs from it."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown"


def append(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> list[Record]:
    """Every record in the file, oldest first; a line cut short by a kill is left out."""
    records = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            records.append(Record(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return records


def latest(records: Iterable[Record]) -> dict[str, Record]:
    return {record.row: record for record in records}


def card(rows: Iterable[Row], records: dict[str, Record]) -> str:
    """The card as a Markdown table, which reads well on a terminal too."""
    table = [("id", "test", "wanted", "measured", "verdict")]
    for row in rows:
        record = records.get(row.id)
        name = f"{row.test} *(real engine)*" if row.voice else row.test
        table.append((row.id, name, row.wanted, _measured(record), _verdict(record)))
    widths = [max(len(line[column]) for line in table) for column in range(5)]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in table]
    lines = [f"| {' | '.join(line)} |" for line in padded]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _measured(record: Record | None) -> str:
    if record is None:
        return "not run"
    return "; ".join(f"{name} {_shown(value)}" for name, value in record.figures.items()).replace("|", "/")


def _verdict(record: Record | None) -> str:
    if record is None:
        return ""
    marks = [record.tier] if record.tier != "N" else []
    if record.scale != 1:
        marks.append(f"{record.scale:g} of the size")
    if not record.timed and record.verdict == "green":
        marks.append("time not judged")
    return record.verdict + (f" ({', '.join(marks)})" if marks else "")


def _shown(value: Figure) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
