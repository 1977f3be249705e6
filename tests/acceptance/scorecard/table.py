"""The card as a table: wrapped for a terminal, or as Markdown for docs/reliability.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from .card import Figure, Row
from .record import Record

HEADS = ("id", "test", "wanted", "measured", "verdict")
WIDTHS = (3, 26, 30, 46, 12)
BEGIN, END = "<!-- card -->", "<!-- end of card -->"

Cells = tuple[str, str, str, str, str]


def text_card(rows: Iterable[Row], records: dict[str, Record]) -> str:
    """120 columns wide."""
    rule = "-+-".join("-" * width for width in WIDTHS)
    lines = [_line(HEADS)]
    for row in rows:
        wrapped = [textwrap.wrap(cell, width) for cell, width in zip(_cells(row, records), WIDTHS, strict=True)]
        lines += [rule, *(_line(cells) for cells in zip_longest(*wrapped, fillvalue=""))]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return " | ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def markdown_card(rows: Iterable[Row], records: dict[str, Record]) -> str:
    """One line a row."""
    lines = [HEADS, ("---",) * len(HEADS), *(_cells(row, records) for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def publish(path: Path, table: str) -> None:
    """Put the table between the marks in the document. Raises ValueError when the marks are not there."""
    before, mark, rest = path.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", "utf-8")


def _cells(row: Row, records: dict[str, Record]) -> Cells:
    record = records.get(row.id)
    name = f"{row.test} *(real engine)*" if row.voice else row.test
    if record is None:
        return row.id, name, row.wanted, "not run", ""
    figures = "; ".join(f"{name} {_shown(value)}" for name, value in record.figures.items())
    return row.id, name, row.wanted, figures or "; ".join(record.missed), _verdict(record)


def _verdict(record: Record) -> str:
    marks = [] if record.tier == "N" else [record.tier]
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
