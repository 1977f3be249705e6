"""The process that runs ahead: what is forked from it finds its imports and settings; who owns an engine may go."""

from __future__ import annotations

import os
import select
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
