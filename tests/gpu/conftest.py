"""The GPU's kernels: on a GPU where there is one, else by Triton's interpreter, where Triton is installed.

`scripts/test-gpu` runs these and the exactness test of the whole engine on a GPU.
"""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint import TalkerCheckpoint, load_checkpoint

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    # Read when the kernels are imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if HAS_GPU else "cpu")


@pytest.fixture(scope="session")
def checkpoint() -> TalkerCheckpoint:
    return load_checkpoint(Path(str(files("voxgate.voices"))) / "demo")


@pytest.fixture(scope="session")
def tokenizer(checkpoint: TalkerCheckpoint) -> Tokenizer:
    return Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
