"""Processes that end with their parent or owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest
from fakes.waiting import DEADLINE_S

EXIT_WITH_OWNER = """
import os, sys, time
from voxgate.pipeline.ipc.process_death import exit_with_owner

if os.fork() == 0:
    exit_with_owner(os.getppid())
    print(os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
os._exit(0)
"""

KILL_WITH_PARENT = """
import os, sys, time
from voxgate.pipeline.ipc.process_death import kill_with_parent

parent = os.getpid()
if os.fork() == 0:
    kill_with_parent(parent)
    print(os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
os._exit(0)
"""

FORKED_BY_SERVER = """
import os, sys, time
from voxgate.pipeline.ipc.process_death import exit_with_owner

gateway = os.getpid()
if os.fork() == 0:
    if os.fork() == 0:
        exit_with_owner(gateway)
        print(os.getppid(), os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
os._exit(0)
"""

SIGNALLED = """
import os
from voxgate.pipeline.ipc.process_death import GROUP_SIGNALS, ignore_group_signals

ignore_group_signals()
for number in GROUP_SIGNALS:
    os.kill(os.getpid(), number)
raise SystemExit(7)
"""

PARENT_GONE = """
from voxgate.pipeline.ipc.process_death import kill_with_parent

kill_with_parent(1 << 30)
raise SystemExit(7)
"""


@pytest.mark.parametrize("source", [EXIT_WITH_OWNER, KILL_WITH_PARENT], ids=["exit_with_owner", "kill_with_parent"])
def test_child_ends_when_parent_is_killed(source: str) -> None:
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        assert select.select([child], [], [], DEADLINE_S)[0]
    os.close(child)


def test_child_ends_with_fork_server_between_it_and_owner() -> None:
    command = [sys.executable, "-c", FORKED_BY_SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        fork_server, engine = map(int, owner.stdout.readline().split())
        ended = os.pidfd_open(engine)
        os.kill(fork_server, signal.SIGKILL)
        assert select.select([ended], [], [], DEADLINE_S)[0]
        owner.kill()
    os.close(ended)


def test_child_whose_parent_ended_before_call_exits_at_once() -> None:
    assert subprocess.run([sys.executable, "-c", PARENT_GONE], timeout=DEADLINE_S).returncode == 0


def test_signals_to_all_processes_are_ignored() -> None:
    assert subprocess.run([sys.executable, "-c", SIGNALLED], timeout=DEADLINE_S).returncode == 7
