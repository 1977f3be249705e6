"""The process that runs ahead: what is forked from it finds its imports and settings; who owns an engine may go."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys
from pathlib import Path
from voxgate.pipeline.talker.forerunner import engine_context, run_ahead

SETTINGS = {"VOXGATE_TEST_AHEAD": "1"}

def tell(name):
    parent = open(f"/proc/{os.getppid()}/cmdline").read()
    print(name, "forkserver" in parent, "colorsys" in sys.modules, os.environ.get("VOXGATE_TEST_AHEAD"), flush=True)

if __name__ == "__main__":
    os.environ |= SETTINGS
    run_ahead(["colorsys"], SETTINGS, Path(sys.argv[1]))
    os.environ |= {"VOXGATE_TEST_AHEAD": "2"}
    for name, settings in (("same", SETTINGS), ("other", {"VOXGATE_TEST_AHEAD": "2"})):
        process = engine_context(settings).Process(target=tell, args=(name,))
        process.start()
        process.join()
"""

OWNED = """
import os, sys, time
from voxgate.pipeline.talker.wiring import die_with

if os.fork() == 0:
    die_with(os.getppid())
    print(os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
os._exit(0)
"""

SLOW = """
import os, sys
print("importing", os.getpid(), flush=True)
sys.stdin.read(1)
print("imported", flush=True)
"""

AHEAD = """
import os, sys, time
from pathlib import Path
from voxgate.pipeline.talker.forerunner import run_ahead

if __name__ == "__main__":
    run_ahead(["slow_to_import"], {}, Path(sys.argv[1]))
    time.sleep(60)
"""

FORKED = """
import os, sys, time
from voxgate.pipeline.talker.wiring import die_with

gateway = os.getpid()
if os.fork() == 0:
    if os.fork() == 0:
        die_with(gateway)
        print(os.getppid(), os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
os._exit(0)
"""


def test_a_process_with_the_same_settings_is_forked_from_the_one_ahead(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    ran = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == ["same True True 1", "other False False 2"]


def test_an_engine_ends_when_its_owner_has() -> None:
    command = [sys.executable, "-c", OWNED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        engine = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
        assert select.select([engine], [], [], 10.0)[0]
    os.close(engine)


def test_an_interrupt_from_the_terminal_does_not_end_the_imports(tmp_path: Path) -> None:
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
        os.kill(ahead, signal.SIGINT)
        gateway.stdin.write("x")
        gateway.stdin.flush()
        assert gateway.stdout.readline() == "imported\n"
        gone = os.pidfd_open(ahead)
        gateway.kill()
        assert select.select([gone], [], [], 10.0)[0]
    os.close(gone)


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
