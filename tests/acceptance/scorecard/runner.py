"""Runs rows one after another, each in a process group of its own that ends with it, at the latest at its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

from ..testbed.gateway_process import environment
from .card import Row, Tier
from .one import Options
from .record import Record, commit


def run_row(row: Row, options: Options) -> Record:
    """Measure a row; whatever becomes of it, nothing it started is left, and there is a record."""
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "acceptance.scorecard.one", row.id, json.dumps(asdict(options))],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment(),
        text=True,
    )
    problem = "it ended without a record"
    told = ""
    try:
        told, _ = process.communicate(timeout=row.deadline_s(Tier(options.tier)))
    except subprocess.TimeoutExpired:
        problem = f"not done after {row.deadline_s(Tier(options.tier)):.0f} s"
    finally:
        _end_group(process)
    try:
        return Record(**json.loads(told.splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        return _failed(row, options, began, problem)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End the row and all that it started: gateways and engines share its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failed(row: Row, options: Options, began: float, problem: str) -> Record:
    return Record(
        row=row.id,
        verdict="red",
        figures={},
        missed=[problem],
        commit=commit(),
        seed=options.seed,
        tier=options.tier,
        scale=options.scale,
        timed=row.timed,
        seconds=round(time.time() - began, 1),
        lateness_p99_ms=None,
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
    )
