"""Tests of the GPU kernels: on a GPU, else in Triton's interpreter where Triton is installed.

`scripts/test-gpu` runs them on a GPU, with the exactness test of the whole engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.ipc.slot_tables import SlotTables, TableShape

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    # Before the kernels are imported, which read it.
    os.environ.setdefault("TRITON_INTERPRET", "1")
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if HAS_GPU else "cpu")


@pytest.fixture(scope="session")
def checkpoint() -> TalkerCheckpoint:
    """The demo voice, or the checkpoint in VOXGATE_TEST_CHECKPOINT with the same text ids, such as a random one of the
    published sizes.
    """
    folder = os.environ.get("VOXGATE_TEST_CHECKPOINT")
    return load_checkpoint(Path(folder) if folder else Path(str(files("voxgate.voices"))) / "demo")


@pytest.fixture(scope="session")
def tokenizer(checkpoint: TalkerCheckpoint) -> Tokenizer:
    return Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))


@contextmanager
def mapped_tables(shape: TableShape) -> Iterator[SlotTables]:
    """Tables that the device can read; unmapped at the end, because CUDA would refuse to map the next ones there."""
    tables, _ = SlotTables.create(shape)
    if not HAS_GPU:
        yield tables
        return
    from voxgate.pipeline.talker.cuda.mapped_tables import map_tables, unmap_tables

    map_tables(tables)
    yield tables
    unmap_tables(tables)
