"""The filter of some dialects, applied to a whole text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from voxgate.pipeline.interface import MarkupDialect
from voxgate.pipeline.text.markup.filter import MarkupFilter
from voxgate.pipeline.text.markup.writer import Piece

Filtered = tuple[list[str | int], tuple[str, ...]]
"""Runs of text and the milliseconds of pauses, and the notices."""


def joined(pieces: Iterable[Piece]) -> list[str | int]:
    """Joins neighbouring runs of text; pauses become their milliseconds."""
    runs: list[str | int] = []
    for piece in pieces:
        if isinstance(piece, str) and runs and isinstance(runs[-1], str):
            runs[-1] += piece
        else:
            runs.append(piece if isinstance(piece, str) else piece.ms)
    return runs


@pytest.fixture
def apply() -> Callable[..., Filtered]:
    """Returns what a text becomes in some dialects."""

    def filtered(text: str, *dialects: str) -> Filtered:
        markup = MarkupFilter(map(MarkupDialect, dialects))
        runs = joined(markup.push(text) + markup.flush())
        return runs, markup.take_notices()

    return filtered
