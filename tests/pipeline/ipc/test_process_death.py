from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

OWNED = """
import os, sys, time
from voxgate.pipeline.ipc.process_death import exit_with_owner

if os.fork() == 0:
    exit_with_owner(os.getppid())
    print(os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
os._exit(0)
"""

FORKED = """
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


def test_an_engine_ends_when_its_owner_has() -> None:
    command = [sys.executable, "-c", OWNED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        engine = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
        assert select.select([engine], [], [], 10.0)[0]
    os.close(engine)


def test_an_engine_ends_with_the_process_it_was_forked_from() -> None:
    command = [sys.executable, "-c", FORKED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        ahead, engine = map(int, gateway.stdout.readline().split())
        gone = os.pidfd_open(engine)
        os.kill(ahead, signal.SIGKILL)
        assert select.select([gone], [], [], 10.0)[0]
        gateway.kill()
    os.close(gone)
