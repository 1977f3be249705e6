"""Programs that check configuration files: HAProxy, promtool and linters. Each is used where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fakes.waiting import DEADLINE_S

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


def tool(name: str) -> str:
    """The path of a program, from PATH or installed by scripts/tools. Skips the test where there is none."""
    tools = Path(os.environ.get("VOXGATE_TOOLS_VENV", ROOT / "build/tools")) / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(tools))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def accepts(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a checker. Fails the test with its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
