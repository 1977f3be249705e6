"""Waking the engine from any process."""

from __future__ import annotations

import queue
import threading
import uuid

import pytest
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.ipc import wakeup as bell
from voxgate.pipeline.ipc.wakeup import SPIN_S, WakeupQueue, WakeupSender


@pytest.fixture
def address() -> str:
    return f"voxgate-test-{uuid.uuid4().hex}"


def test_many_rings_at_a_time_are_one(address: str) -> None:
    rope = WakeupSender(address)
    rope.notify()  # nobody listens yet
    door = WakeupQueue(address, "look")
    for _ in range(1000):
        rope.notify()
    assert door.empty()
    assert door.get() == "look"
    with pytest.raises(queue.Empty):
        door.get_nowait()
    rope.notify()
    assert door.get() == "look"
    rope.close()
    rope.close()
    rope.notify()


def test_what_is_put_in_comes_out_in_order_and_wakes_who_waits(address: str) -> None:
    door, got = WakeupQueue(address, "look"), queue.Queue[str]()
    threading.Thread(target=lambda: [got.put(door.get()) for _ in range(4)], daemon=True).start()
    for item in ("one", "two", "three"):
        door.put_nowait(item)
    assert [got.get(timeout=DEADLINE_S) for _ in range(3)] == ["one", "two", "three"]
    WakeupSender(address).notify()
    assert got.get(timeout=DEADLINE_S) == "look"


def test_after_a_ring_it_does_not_sleep_for_a_moment(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, looks = [100.0], []
    door, rope = WakeupQueue(address, "look"), WakeupSender(address)

    class Poll:
        def poll(self, timeout: float | None) -> list[tuple[int, int]]:
            looks.append(timeout)
            now_s[0] += SPIN_S / 4
            if timeout is None:
                rope.notify()
            return found.poll(timeout)

    monkeypatch.setattr(bell.time, "monotonic", lambda: now_s[0])
    found, door._poll = door._poll, Poll()
    assert [door.get(), door.get()] == ["look", "look"]
    assert looks == [None, 0, 0, 0, 0, None]
