"""CUDA sources compiled for the CPU, with `cuda_on_cpu.h`, for where there is no GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from voxgate.pipeline.cuda.nvrtc import SHARED_HEADERS, Launch


def cpu_launch(source: Path, macros: Mapping[str, int], folder: Path, order: int = 0) -> Launch:
    """Of the kernel in `source`, built in `folder`; BLOCKS of `macros` is how many blocks there always are.

    `order`: how its threads, and what is on its way, take turns: a seed, or 0 for all in each round.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = folder / f"{source.stem}.so"
    given = [f"-D{name}={value}" for name, value in {**macros, "ON_CPU": 1}.items()]
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-x", "c++", f"-I{Path(__file__).parent}", f"-I{SHARED_HEADERS}"]
    subprocess.run([compiler, *flags, *given, "-o", library, source], check=True)
    run = ctypes.CDLL(str(library)).launch
    return lambda _blocks, _threads, argument: run(argument, order)
