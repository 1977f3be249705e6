"""Prompts and greedy codes of every task and layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from family_cases import CASES

from .qwen import speak


def record(work: Path) -> dict[str, np.ndarray]:
    said: dict[str, np.ndarray] = {}
    for case in CASES:
        heard = speak(case, work)
        said |= {f"{case.name}/{part}": heard[part] for part in ("prompt", "trailing")}
        said[f"{case.name}/codes"] = heard["codes"].astype(np.int16)
    return said
