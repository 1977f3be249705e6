"""A process ends together with the one that owns it, so that none outlives the gateway, and by no signal to all."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""


GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that reach all processes of a terminal or of a service; the gateway decides when its processes end."""


def ignore_group_signals() -> None:
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def kill_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends.

    The signal is tied to the parent's *thread* that started this process: use it only where that is the main thread
    (asyncio's subprocesses); otherwise use `exit_with_owner`. `parent_pid`: exits at once if the parent ended before
    this call; None where a closed pipe or socket ends this process in that case.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        sys.exit(0)


def exit_with_owner(owner_pid: int) -> None:
    """Exit this process from a thread as soon as its owner or its parent ends, however it ends.

    The parent differs from the owner where a fork server stands between them; once that is gone, the owner takes this
    process for dead and starts another.
    """
    parent_pid = os.getppid()

    def watch() -> None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(pid) for pid in {owner_pid, parent_pid}], [], [])
        os._exit(1)

    threading.Thread(target=watch, name="owner-watch", daemon=True).start()
