"""Options and reports of the whole test run; the acceptance tests (docs/reliability.md) use them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop
from fakes.hang_guard import PHASE_LIMIT_S, HungError, ended_within

ACCEPTANCE = "tests/acceptance/"
CLIENTS = ("tests/client/", "tests/integrations/", "tests/examples/")
RESULTS = Path(__file__).parents[1] / "build" / "acceptance.jsonl"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance", "acceptance tests")
    group.addoption("--seed", type=int, default=1, help="seed of the tests with random input (%(default)s)")
    group.addoption(
        "--scale", type=float, default=1.0, metavar="X", help="multiply every size of the nightly acceptance tests"
    )
    group.addoption(
        "--timing",
        action="store_true",
        help="check figures of time; tests that have some are skipped on a busy machine",
    )
    group.addoption("--soak-s", type=float, default=600, metavar="S", help="length of the soak test (%(default)s)")


def pytest_report_header(config: pytest.Config) -> str:
    option = config.option
    return f"acceptance: --seed {option.seed} --scale {option.scale:g}{' --timing' if option.timing else ''}"


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """asyncio's loop for what runs in a user's program; else uvloop, as in the gateway: their timers differ."""
    return {"loop": asyncio.new_event_loop if item.nodeid.startswith(CLIENTS) else uvloop.new_event_loop}


MAX_HUNG = 3
"""Tests that hung after which the run ends: the machine lacks something that all of them wait for."""
_hung = 0


def _guarded(item: pytest.Item) -> contextlib.AbstractContextManager[None]:
    """Ends a phase of a test that hangs; nightly ones may take hours."""
    nightly = item.get_closest_marker("nightly") is not None
    return contextlib.nullcontext() if nightly else ended_within(PHASE_LIMIT_S)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item):
    with _guarded(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    global _hung
    try:
        with _guarded(item):
            return (yield)
    except HungError:
        _hung += 1
        if _hung >= MAX_HUNG:
            item.session.shouldstop = f"{_hung} tests hung"
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item):
    with _guarded(item):
        return (yield)


_commit = ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Append the figures of an acceptance test to build/acceptance.jsonl, one line of JSON per test."""
    report: pytest.TestReport = yield
    if report.when == "call" and report.nodeid.startswith(ACCEPTANCE) and report.user_properties:
        option = item.config.option
        line = {
            "test": report.nodeid,
            "outcome": report.outcome,
            "figures": dict(report.user_properties),
            "seconds": round(report.duration, 1),
            "commit": commit(),
            "seed": option.seed,
            "scale": option.scale,
            "timing": option.timing,
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(report.start)),
        }
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
    return report


def commit() -> str:
    """The commit under test, marked "-dirty" when the tree differs from it; "unknown" outside a repository."""
    global _commit
    if not _commit:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        _commit = answer.stdout.strip() or "unknown"
    return _commit


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the acceptance tests."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and report.nodeid.startswith(ACCEPTANCE) and report.user_properties
    ]
    if not reports:
        return
    terminalreporter.section("figures")
    for report in reports:
        figures = "; ".join(f"{name} {value}" for name, value in report.user_properties)
        terminalreporter.line(f"{report.nodeid.removeprefix(ACCEPTANCE)}: {figures}")
