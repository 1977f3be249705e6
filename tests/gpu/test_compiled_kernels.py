"""Every kernel compiles for every supported chip and fits in its shared memory. Needs Triton and no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHIPS = {
    "A100": ("8.0", 166_912),
    "A10, RTX 3090": ("8.6", 101_376),
    "L4, L40S, RTX 4090": ("8.9", 101_376),
    "H100, H200": ("9.0", 232_448),
    "B200": ("10.0", 232_448),
    "RTX 5090": ("12.0", 101_376),
}
"""Compute capability, and shared memory that a block may use, in bytes (CUDA C++ Programming Guide, technical
specifications by compute capability)."""


def kernels(chip: str, *parts: str) -> list[tuple[str, int]]:
    """Name and shared memory of each kernel; in a process of its own, where Triton's interpreter is off."""
    capability, shared = CHIPS[chip]
    command = [sys.executable, "-m", "tests.gpu.compile_kernels", capability, str(shared), *parts]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return [(entry["kernel"], entry["shared_bytes"]) for entry in map(json.loads, result.stdout.splitlines())]


def check(chip: str, *parts: str) -> None:
    compiled = kernels(chip, *parts)
    assert Counter(name for name, _ in compiled)
    assert [(name, shared) for name, shared in compiled if shared > CHIPS[chip][1]] == []


@pytest.mark.parametrize("chip", ["L4, L40S, RTX 4090"])
def test_kernels_of_a_step_compile_and_fit(chip: str) -> None:
    check(chip, "layers", "step")


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("part", ["predictor", "layers", "step", "codec"])
def test_all_kernels_compile_and_fit(chip: str, part: str) -> None:
    check(chip, part)
