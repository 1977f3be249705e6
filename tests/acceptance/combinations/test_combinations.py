from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from voxgate.gateway.session.slots.starvation import Starvation
from voxgate.gateway.transport import resumption

from ..testbed.measuring import Figures, nightly
from .machine import execute, report, shrink
from .program import generate
from .world import Files

BROKEN_RUNS = 1000
"""Most programs that look for a rule that is broken; the first hundred find it."""
MAX_REPORTS = 5
"""Failing seeds that are shrunk and printed."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    files = Files.make(tmp_path)
    execute(generate(0), files)  # loads what is loaded once
    gc.collect()
    gc.freeze()  # each run collects garbage, which is quick where only its own objects are looked at
    yield files
    gc.unfreeze()


@pytest.mark.parametrize("runs", [1000, nightly(100_000)])
def test_combinations_leave_nothing_behind(
    runs: int, seed: int, scaled: Callable[..., int], files: Files, figures: Figures
) -> None:
    """Clients, network, engine and operator in any order; see `invariants`. `--seed N` replays seed N first."""
    failed = []
    began_s = os.times().user + os.times().system
    for number in range(seed, seed + scaled(runs)):
        outcome = execute(generate(number), files)
        if outcome.faults:
            failed.append(outcome)
    spent_s = os.times().user + os.times().system - began_s
    figures.note("runs", scaled(runs))
    figures.note("ms of processor time per run", 1000 * spent_s / scaled(runs))
    for outcome in failed[:MAX_REPORTS]:
        print(report(shrink(outcome, files)))
    assert [f"seed {outcome.program.seed}: {sorted(outcome.kinds)}" for outcome in failed] == []


def test_a_seed_replays_exactly(seed: int, files: Files) -> None:
    programs = [program for number in range(seed, seed + 30) if not (program := generate(number)).setup.tcp]
    assert [execute(program, files).digest for program in programs] == [
        execute(program, files).digest for program in programs
    ]


def _keep_slots_without_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Starvation, "gives_way", lambda *_: False)
    patch.setattr(Starvation, "next_look_s", lambda *_: math.inf)


def _keep_slots_without_connection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resumption, "CONTESTED_S", math.inf)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("break_rule", "fault"),
    [
        (_keep_slots_without_text, "a time in the queue ended beside a slot without text"),
        (_keep_slots_without_connection, "a time in the queue ended beside a slot without a connection"),
    ],
)
def test_broken_rule_of_slots_in_sessions_is_found(
    break_rule: Callable[[pytest.MonkeyPatch], None], fault: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of `test_fairness`, for the rule that needs sessions."""
    break_rule(monkeypatch)
    outcomes = (execute(generate(seed), files) for seed in range(BROKEN_RUNS))
    assert any(each.startswith(fault) for outcome in outcomes for each in outcome.faults)
