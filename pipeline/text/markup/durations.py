"""Durations of pauses as the dialects write them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"\+?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})\s*(ms|s)?", re.IGNORECASE)
_MS = {"s": 1000.0, "ms": 1.0}


def duration_ms(text: str, default_unit: str) -> float | None:
    """Returns the milliseconds of a duration such as "1.5s" or "500ms"; None if it is none.

    `default_unit`: the unit of a number without one, "s" or "ms".
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    return float(found[1]) * _MS[(found[2] or default_unit).lower()]
