from __future__ import annotations

from pathlib import Path

import pytest

from .small_base import write_small_base


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_base(tmp_path_factory.mktemp("checkpoint") / "small-base")
