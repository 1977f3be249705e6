"""Parts that tests of the pipeline share: the demo voice, and the real engine on it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    return Path(str(files("voxgate.voices"))) / "demo"


@pytest.fixture(scope="session")
def checkpoint(demo_folder: Path) -> TalkerCheckpoint:
    return load_checkpoint(demo_folder)


@pytest.fixture(scope="session")
def tokenizer(demo_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(demo_folder / "tokenizer.json"))
