"""Compiles CUDA C++ sources for the CPU with `cuda_on_cpu.h`, to test them without a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from torch import Tensor
from voxgate.pipeline.cuda.nvrtc import SHARED_HEADERS, Launch


def cpu_launch(
    source: Path, macros: Mapping[str, int], folder: Path, order: int = 0, late: Sequence[Tensor] = ()
) -> Launch:
    """Launches the kernel in `source`, compiled into `folder`, always with BLOCKS blocks (one of `macros`).

    `order`: how threads and asynchronous copies take turns: 0 for all in each round, else the seed of a random order.
    `late`, at each launch: what the kernels before write; the kernel reads NaN there before it waits for them.
    Skips the test where there is no C++ compiler.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = folder / f"{source.stem}.so"
    defines = [f"-D{name}={value}" for name, value in {**macros, "ON_CPU": 1}.items()]
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-x", "c++", f"-I{Path(__file__).parent}", f"-I{SHARED_HEADERS}"]
    subprocess.run([compiler, *flags, *defines, "-o", library, source], check=True)
    run = ctypes.CDLL(str(library)).launch

    def launch(_blocks: int, _threads: int, params: bytes) -> None:
        places = (ctypes.c_void_p * len(late))(*(each.data_ptr() for each in late))
        sizes = (ctypes.c_size_t * len(late))(*(each.nbytes for each in late))
        run(params, order, places, sizes, len(late))

    return launch
