"""Runs scripts in Node."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from fakes.waiting import DEADLINE_S

NODE = shutil.which("node")


def node_version() -> int:
    """Node's major version; 0 without Node."""
    if NODE is None:
        return 0
    return int(subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout[1:].split(".")[0])


async def run_script(script: Path, *arguments: str) -> Any:
    """Runs `script` and returns the JSON that it prints."""
    assert NODE is not None
    # Before version 22 Node has its WebSocket behind a flag.
    flags = [] if node_version() >= 22 else ["--experimental-websocket", "--no-warnings"]
    process = await asyncio.create_subprocess_exec(NODE, *flags, script, *arguments, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(DEADLINE_S):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)
