"""The card's light tier with every commit: what is right or wrong whatever else the machine does."""

from __future__ import annotations

import random

import pytest
from acceptance.scorecard.card import Row, Tier, all_rows
from acceptance.scorecard.one import Options
from acceptance.scorecard.runner import run_row

NOT_HERE = {"S7", "C1"}
"""The first has tests of its own that run by themselves, and what the second shows is all about time."""
LIGHT = [row for row in all_rows().values() if row.runs_in(Tier.LIGHT) and row.id not in NOT_HERE]


@pytest.mark.parametrize("row", LIGHT, ids=lambda row: row.id)
def test_row(row: Row) -> None:
    record = run_row(row, Options(tier="L", seed=random.randrange(10**6), judge_time=False))
    assert record.missed == [], f"scripts/scorecard {row.id} --seed {record.seed}"
