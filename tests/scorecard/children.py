"""How a process that is started from here finds these packages."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """This one's: with a path on which pytest and scripts/scorecard, each in its own way, have put the tests here."""
    paths = filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
