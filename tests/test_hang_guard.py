"""A test that hangs is ended, whatever it waits for."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import uvloop
from fakes.hang_guard import PHASE_LIMIT_S, HungError, ended_within

LIMIT_S, LONGER_S = 0.05, 1e6


async def _wait() -> None:
    await asyncio.Event().wait()


async def _swallow() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError from None


def _wait_for_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.wait()


HANGS = {
    "asyncio": lambda: asyncio.run(_wait()),
    "uvloop": lambda: uvloop.run(_wait()),
    "a task that answers a cancellation with an error": lambda: asyncio.run(_swallow()),
    "a lock": lambda: threading.Lock().acquire() and threading.Event().wait(),
    "a process": _wait_for_process,
}


@pytest.mark.parametrize("name", HANGS)
def test_what_hangs_is_ended(name: str) -> None:
    hang: Callable[[], object] = HANGS[name]
    with pytest.raises(HungError, match=r"0\.05 s"), ended_within(LIMIT_S):
        hang()


def test_stacks_of_tasks_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HungError), ended_within(LIMIT_S):
        asyncio.run(_wait())
    assert "in _wait\n" in capfd.readouterr().err


def test_every_test_has_a_limit() -> None:
    """That of this one goes on after one inside it."""
    outer = signal.getsignal(signal.SIGALRM)
    with ended_within(LONGER_S):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > PHASE_LIMIT_S
    assert signal.getsignal(signal.SIGALRM) is outer
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= PHASE_LIMIT_S
