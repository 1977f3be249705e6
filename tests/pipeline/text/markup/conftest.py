"""The filter of some dialects, applied to a whole text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from voxgate.pipeline.interface import MarkupDialect
from voxgate.pipeline.text.markup.filter import MarkupFilter
from voxgate.pipeline.text.markup.writer import Pause, Piece, ProsodyChange

Applied = str | int | tuple[float, float]
"""A run of text, the milliseconds of a pause, or the rate and volume of a change."""
Filtered = tuple[list[Applied], tuple[str, ...]]
"""What a filter has written, and the notices."""


def joined(pieces: Iterable[Piece]) -> list[Applied]:
    """Joins neighbouring runs of text."""
    runs: list[Applied] = []
    for piece in pieces:
        match piece:
            case Pause(ms):
                runs.append(ms)
            case ProsodyChange(prosody):
                runs.append((prosody.rate, prosody.volume))
            case str() if runs and isinstance(runs[-1], str):
                runs[-1] += piece
            case str():
                runs.append(piece)
    return runs


@pytest.fixture
def apply() -> Callable[..., Filtered]:
    """Returns what a text becomes in some dialects."""

    def filtered(text: str, *dialects: str) -> Filtered:
        markup = MarkupFilter(map(MarkupDialect, dialects))
        runs = joined(markup.push(text) + markup.flush())
        return runs, markup.take_notices()

    return filtered
