"""The scripts that run the tests: each runs the tests of its tier."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
APART = ("nightly", "reference", "compat")
"""Marks of the tests that do not run with every commit."""


@pytest.mark.parametrize(
    ("script", "ordinary", "marked"),
    [
        ("test", True, set()),
        ("test-nightly", True, {"nightly"}),
        ("test-reference", False, {"reference"}),
        ("test-compat", False, {"compat"}),
    ],
)
def test_script_runs_the_tests_of_its_tier(script: str, ordinary: bool, marked: set[str]) -> None:
    wanted = re.findall(r"""-m (\w+|"[^"]+")(?= )""", (SCRIPTS / script).read_text("utf-8"))[-1].strip('"')

    def runs(*marks: str) -> bool:
        return bool(eval(wanted, {name: name in marks for name in APART}))

    assert runs() == ordinary
    assert {mark for mark in APART if runs(mark)} == marked
