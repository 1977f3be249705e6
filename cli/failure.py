"""How commands report failures: one sentence on stderr, naming the command, and an exit status."""

from __future__ import annotations

import sys
from pathlib import Path

EXTRAS = {"serve": "cpu", "keys": "server", "voices": "cpu", "bench": "server"}
"""The extra of the distribution with the libraries of each command; `say` and `doctor` need none."""
_SETUP = Path(__file__).resolve().parents[1] / "scripts" / "setup"
"""Exists in a checkout only."""


def fail(command: str, text: str, status: int = 1) -> int:
    """Prints `text` as the failure of `voxgate COMMAND`; returns `status`, which is 2 for wrong usage."""
    print(f"voxgate {command}: {text}", file=sys.stderr)
    return status


def missing_library(command: str, library: str) -> str:
    """The sentence for a command that cannot import `library`."""
    return f"{library} is not installed: {install_advice(EXTRAS.get(command, 'server'))}"


def install_advice(extra: str) -> str:
    """How to install the libraries of `extra`: by scripts/setup in a checkout, else by pip."""
    if _SETUP.exists():
        return "run scripts/setup"
    advice = f"pip install 'PATH_OF_YOUR_CLONE[{extra}]'"
    return f"{advice}, or with [cuda] for an NVIDIA GPU" if extra == "cpu" else advice
