from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ..card import Trial, row

TESTS = Path(__file__).parents[2]


@row(
    "S7",
    "text chunking: the same text in any fragmentation, at any concurrency, greedy and seeded",
    "identical codes",
    light_s=60,
    nightly_s=60,
    voice=True,
)
def exactness(trial: Trial) -> None:
    """The engine against a plain loop that shares no code with it (tests/pipeline/talker/test_exactness.py)."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "pipeline/talker/test_exactness.py"]
    told = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", told.stdout)
    failed = re.search(r"(\d+) (failed|error)", told.stdout)
    trial.note("comparisons passed", int(passed[1]) if passed else told.stdout.count("."))
    trial.equal("failed", int(failed[1]) if failed else 0, 0)
    trial.equal("exit status", told.returncode, 0)
    if told.returncode:
        print(told.stdout[-2000:], file=sys.stderr)
