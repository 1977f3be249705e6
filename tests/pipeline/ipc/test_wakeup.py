"""Waking the engine from any process."""

from __future__ import annotations

import queue
import threading
import uuid
from contextlib import closing

import pytest
from fakes.waiting import DEADLINE_S, block_until
from voxgate.pipeline.ipc import wakeup
from voxgate.pipeline.ipc.wakeup import SPIN_S, WakeupListener, WakeupQueue, WakeupSender

NEVER_S = 100_000.0


@pytest.fixture
def address() -> str:
    return f"voxgate-test-{uuid.uuid4().hex}"


def test_many_notifications_count_as_one(address: str) -> None:
    sender = WakeupSender(address)
    sender.notify()  # no engine listens yet
    queued = WakeupQueue(address, "wake up")
    for _ in range(1000):
        sender.notify()
    assert queued.empty()
    assert queued.get() == "wake up"
    with pytest.raises(queue.Empty):
        queued.get_nowait()
    sender.notify()
    assert queued.get() == "wake up"
    sender.close()
    sender.close()
    sender.notify()


def test_sender_connects_again_to_the_next_engine(address: str) -> None:
    sender = WakeupSender(address)
    for _ in range(2):
        with closing(WakeupListener(address)) as engine:
            sender.notify()
            block_until(engine.read)
            assert not engine.read()
        sender.notify()
    sender.close()


def test_full_socket_neither_blocks_nor_loses_the_notification(address: str) -> None:
    sender = WakeupSender(address)
    with closing(WakeupListener(address)) as engine:
        for _ in range(100_000):
            sender.notify()
        block_until(engine.read)
        block_until(lambda: not engine.read())
        sender.notify()
        assert engine.read()
    sender.close()


def test_one_read_takes_a_bounded_number_of_notifications(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "MAX_NOTIFICATIONS", 10)
    sender = WakeupSender(address)
    with closing(WakeupListener(address)) as engine:
        for _ in range(25):
            sender.notify()
        block_until(engine.read)
        assert [engine.read() for _ in range(3)] == [True, True, False]
    sender.close()


def test_processes_of_other_users_are_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeup, "is_same_user", lambda _: False)
    with closing(WakeupListener(address)) as engine:
        for _ in range(5):
            with closing(WakeupSender(address)) as other:
                other.notify()
                assert not any(engine.read() for _ in range(3))
        assert engine._senders == {}
    assert len(caplog.records) == 1


def test_ended_senders_are_forgotten(address: str) -> None:
    with closing(WakeupListener(address)) as engine:
        sender = WakeupSender(address)
        sender.notify()
        block_until(engine.read)
        sender.close()
        block_until(lambda: not engine.read() and not engine._senders)


def test_items_are_returned_in_order_and_end_the_wait(address: str) -> None:
    queued, got = WakeupQueue(address, "wake up"), queue.Queue[str]()
    threading.Thread(target=lambda: [got.put(queued.get()) for _ in range(4)], daemon=True).start()
    for item in ("one", "two", "three"):
        queued.put_nowait(item)
    assert [got.get(timeout=DEADLINE_S) for _ in range(3)] == ["one", "two", "three"]
    WakeupSender(address).notify()
    assert got.get(timeout=DEADLINE_S) == "wake up"


def test_queue_polls_for_a_moment_after_notification(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, looks = [100.0], []
    queued, sender = WakeupQueue(address, "wake up"), WakeupSender(address)

    def look(seconds: float | None) -> bool:
        looks.append(seconds)
        now_s[0] += SPIN_S / 4
        if seconds is None:
            sender.notify()
        return WakeupQueue._look(queued, seconds)

    monkeypatch.setattr(wakeup.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(queued, "_look", look)
    assert [queued.get(), queued.get()] == ["wake up", "wake up"]
    assert looks == [None, 0, 0, 0, 0, None]


def test_queue_returns_the_wakeup_item_at_the_moment_that_it_is_given(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, looks = [100.0], []
    queued = WakeupQueue(address, "wake up", lambda: 100.02)

    def look(seconds: float) -> bool:
        looks.append(seconds)
        now_s[0] += seconds
        return False

    monkeypatch.setattr(wakeup.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(queued, "_look", look)
    assert queued.get() == "wake up"
    assert looks == [pytest.approx(0.02)]
    queued.put_nowait("item")
    assert queued.get() == "item", "what was put in comes first"


@pytest.mark.parametrize("descriptors", [0, wakeup.SELECT_DESCRIPTORS])
def test_wait_ends_with_a_notification_which_polling_follows(
    address: str, monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    monkeypatch.setattr(wakeup, "SELECT_DESCRIPTORS", descriptors)
    queued, sender = WakeupQueue(address, "wake up"), WakeupSender(address)
    threading.Timer(0.01, sender.notify).start()
    assert queued.wait(NEVER_S)
    assert queued._notified_s > 0, "the loop polls from now on"
    with pytest.raises(queue.Empty):
        queued.get_nowait()
    sender.close()


def test_wait_ends_with_its_time(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, looks = [100.0], []
    queued = WakeupQueue(address, "wake up")

    def look(seconds: float) -> bool:
        looks.append(seconds)
        now_s[0] += seconds / 2 if len(looks) == 1 else seconds  # the first look found an old event of an item
        return False

    monkeypatch.setattr(wakeup.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(queued, "_look", look)
    assert queued.wait(0.002)
    assert looks == pytest.approx([0.002, 0.001])


def test_wait_ends_with_an_item_and_leaves_it(address: str) -> None:
    queued = WakeupQueue(address, "wake up")
    threading.Timer(0.01, queued.put_nowait, ["item"]).start()
    assert not queued.wait(NEVER_S)
    assert not queued.wait(NEVER_S)
    assert queued.get() == "item"
