"""What remains of a run: one JSON line a row."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from .card import Figure

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
