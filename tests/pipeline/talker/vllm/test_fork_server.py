"""The fork server: its children have its imports and settings."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from fakes.waiting import DEADLINE_S

SCRIPT = """
import gc, os, sys
from pathlib import Path
from voxgate.pipeline.talker.vllm.fork_server import multiprocessing_context, start_fork_server

SETTINGS = {"VOXGATE_TEST_AHEAD": "1"}

def tell(name):
    parent = open(f"/proc/{os.getppid()}/cmdline").read()
    seen = "colorsys" in sys.modules, os.environ.get("VOXGATE_TEST_AHEAD"), gc.isenabled(), gc.get_freeze_count() > 0
    print(name, "forkserver" in parent, *seen, flush=True)

if __name__ == "__main__":
    os.environ |= SETTINGS
    start_fork_server(["no_such_module", "colorsys"], SETTINGS, Path(sys.argv[1]))
    os.environ |= {"VOXGATE_TEST_AHEAD": "2"}
    for name, settings in (("same", SETTINGS), ("other", {"VOXGATE_TEST_AHEAD": "2"})):
        process = multiprocessing_context(settings).Process(target=tell, args=(name,))
        process.start()
        process.join()
"""

SLOW = """
import os, sys
print("importing", os.getpid(), flush=True)
sys.stdin.read(1)
print("uninterrupted", flush=True)
sys.stdin.read(1)
"""

AHEAD = """
import os, sys, time
from pathlib import Path
from voxgate.pipeline.talker.vllm.fork_server import start_fork_server

if __name__ == "__main__":
    start_fork_server(["slow_to_import"], {}, Path(sys.argv[1]))
    time.sleep(60)
"""

SIGNALLED = """
import os, signal, sys
from multiprocessing.connection import wait
from pathlib import Path
from voxgate.pipeline.talker.vllm.fork_server import multiprocessing_context, start_fork_server

def engine():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))  # as vLLM does
    os.kill(os.getpid(), signal.SIGTERM)
    print("speaking", flush=True)
    signal.pause()

if __name__ == "__main__":
    start_fork_server([], {}, Path(sys.argv[1]))
    process = multiprocessing_context({}).Process(target=engine, daemon=True)
    process.start()
    wait([process.sentinel, sys.stdin])
"""


def test_process_is_ended_by_the_gateway_and_not_by_a_signal_to_all(tmp_path: Path) -> None:
    (script := tmp_path / "main.py").write_text(SIGNALLED)
    command = [sys.executable, script, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == "speaking\n"
        try:
            gateway.communicate(timeout=DEADLINE_S)
        finally:
            gateway.kill()
    assert gateway.returncode == 0


ORPHAN = SIGNALLED.replace('print("speaking", flush=True)', "print(os.getpid(), flush=True)")


def test_process_ends_with_a_gateway_that_is_killed(tmp_path: Path) -> None:
    (script := tmp_path / "main.py").write_text(ORPHAN)
    command = [sys.executable, script, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        gone = os.pidfd_open(int(gateway.stdout.readline()))
        gateway.kill()
        assert select.select([gone], [], [], DEADLINE_S)[0]
    os.close(gone)


def test_process_with_same_settings_is_forked_and_others_spawned(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    ran = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == ["same True True 1 True True", "other False False 2 True False"]


def test_imports_end_with_the_gateway_and_by_no_signal_to_all(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    (script := tmp_path / "main.py").write_text(AHEAD)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        ahead = int(gateway.stdout.readline().split()[1])
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(ahead, number)
        gateway.stdin.write("x")
        gateway.stdin.flush()
        assert gateway.stdout.readline() == "uninterrupted\n"
        gone = os.pidfd_open(ahead)
        gateway.kill()
        assert select.select([gone], [], [], DEADLINE_S)[0]
    os.close(gone)
