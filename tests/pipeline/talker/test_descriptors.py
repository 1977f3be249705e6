from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.talker.descriptors import START_NEEDS, check_descriptors


def open_files() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]


@pytest.fixture
def _few_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(open_files())
    free = [number for number in range(len(taken) + START_NEEDS) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[START_NEEDS // 2], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_with_enough_left_nothing_stays_open() -> None:
    before = set(open_files())
    check_descriptors()
    # Fewer may be: what others have left open goes when it is collected.
    assert set(open_files()) <= before


@pytest.mark.usefixtures("_few_left")
def test_without_the_engine_is_not_started() -> None:
    before = set(open_files())
    with pytest.raises(EngineError, match="too many files are open"):
        check_descriptors()
    assert set(open_files()) <= before
