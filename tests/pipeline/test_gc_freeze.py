from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from voxgate.pipeline.gc_freeze import FULL_AFTER, freeze_gc, gc_paused


class Engine:
    """A reference cycle, like a lost engine's objects."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_live_objects_are_frozen() -> None:
    engine = Engine()
    freeze_gc()
    assert all(engine is not looked_at for looked_at in gc.get_objects())


def test_full_collections_are_rare_afterwards() -> None:
    freeze_gc()
    assert gc.get_threshold()[2] == FULL_AFTER


def test_frozen_garbage_is_collected_by_the_next_call() -> None:
    engine = Engine()
    freeze_gc()
    lost = weakref.ref(engine)
    del engine
    gc.collect()
    assert lost() is not None, "spared it is, dead or not"
    freeze_gc()
    assert lost() is None


def test_collections_pause_and_resume() -> None:
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled(), "the outer block has not ended"
    assert gc.isenabled()
