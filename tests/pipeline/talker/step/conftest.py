"""A bench for each test."""

from __future__ import annotations

import pytest
from voxgate.pipeline.checkpoint import TalkerCheckpoint

from .bench import Bench


@pytest.fixture
def bench(checkpoint: TalkerCheckpoint) -> Bench:
    return Bench(checkpoint)
