"""The query of a GPU's memory, on a machine without and with a GPU."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.cuda import device_memory
from voxgate.pipeline.cuda.device_memory import query_device_memory
from voxgate.pipeline.errors import EngineError


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_machine_without_gpu_is_told_in_one_sentence() -> None:
    with pytest.raises(EngineError, match=r"no usable NVIDIA GPU: .*libcuda"):
        query_device_memory()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_memory_is_that_of_the_device() -> None:
    memory = query_device_memory()
    assert memory.total == torch.cuda.mem_get_info()[1]
    assert 0 < memory.free < memory.total


def test_query_imports_no_torch() -> None:
    """It runs at every start, and importing torch takes seconds."""
    code = f"import sys, {device_memory.__name__}; sys.exit('torch' in sys.modules)"
    assert find_spec("torch") is not None
    assert subprocess.run([sys.executable, "-c", code], timeout=DEADLINE_S, check=False).returncode == 0
