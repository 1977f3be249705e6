"""Ends a test that hangs, wherever it waits, so that it fails with the stacks of all threads and the run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
import sys
from collections.abc import Iterator
from typing import Any

PHASE_LIMIT_S = 900.0
"""Longest set-up, run or tear-down of a test. Only a hang reaches it: single waits end after a minute."""
AGAIN_S = 60.0
"""Seconds after which it is ended again: it may hang once more while it cleans up."""


class HungError(AssertionError):
    """A test did not end within its limit."""


class _Interrupt(KeyboardInterrupt):
    """Raised where the main thread is. Event loops keep other exceptions in the task that was running."""


@contextlib.contextmanager
def ended_within(limit_s: float) -> Iterator[None]:
    """Ends what the main thread does after `limit_s`. Raises HungError from where it was. May be nested.

    Code that runs no Python, or swallows KeyboardInterrupt, goes on: `faulthandler_timeout` shows its stacks.
    """

    def interrupt(*_: object) -> None:
        _print_stacks()
        raise _Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    outer = signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    except _Interrupt as hung:
        raise HungError(f"not ended after {limit_s:g} s") from hung
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, before)


def _print_stacks() -> None:
    """Prints where every thread and every task waits."""
    faulthandler.dump_traceback(sys.__stderr__)
    with contextlib.suppress(RuntimeError):  # no event loop runs
        for task in asyncio.all_tasks():
            print(f"{task.get_name()} waits in", *_places(task.get_coro()), sep="\n  ", file=sys.__stderr__)


def _places(coroutine: Any) -> Iterator[str]:
    """Where a coroutine waits, the outermost place first."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        coroutine = coroutine.cr_await
