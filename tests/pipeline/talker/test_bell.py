"""Waking the engine from any process."""

from __future__ import annotations

import queue
import threading
import uuid

import pytest
from voxgate.pipeline.talker.bell import BellRope, Door


@pytest.fixture
def address() -> str:
    return f"voxgate-test-{uuid.uuid4().hex}"


def test_many_rings_at_a_time_are_one(address: str) -> None:
    rope = BellRope(address)
    rope.ring()  # nobody listens yet
    door = Door(address, "look")
    for _ in range(1000):
        rope.ring()
    assert door.empty()
    assert door.get() == "look"
    with pytest.raises(queue.Empty):
        door.get_nowait()
    rope.ring()
    assert door.get() == "look"
    rope.close()
    rope.close()
    rope.ring()


def test_what_is_put_in_comes_out_in_order_and_wakes_who_waits(address: str) -> None:
    door, got = Door(address, "look"), queue.Queue[str]()
    threading.Thread(target=lambda: [got.put(door.get()) for _ in range(4)], daemon=True).start()
    for item in ("one", "two", "three"):
        door.put_nowait(item)
    assert [got.get(timeout=5) for _ in range(3)] == ["one", "two", "three"]
    BellRope(address).ring()
    assert got.get(timeout=5) == "look"
