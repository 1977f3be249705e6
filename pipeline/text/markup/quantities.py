"""Durations, ratios and percentages as the dialects write them."""

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


_RATIO = re.compile(r"(\d{1,4}(?:\.\d{0,9})?|\.\d{1,9})")
_PERCENTAGE = re.compile(r"([+-]?)(\d{1,4}(?:\.\d{0,9})?)\s?%")


def ratio(text: str) -> float | None:
    """Returns the value of a ratio such as "1.5"; None if it is none."""
    found = _RATIO.fullmatch(text.strip())
    return None if found is None else float(found[1])


def percentage(text: str) -> float | None:
    """Returns the factor of a percentage: 1.2 for "120%" and for "+20%"; None if it is none."""
    found = _PERCENTAGE.fullmatch(text.strip())
    if found is None:
        return None
    value = float(found[2]) / 100
    return value if not found[1] else max(0.0, 1 - value if found[1] == "-" else 1 + value)
