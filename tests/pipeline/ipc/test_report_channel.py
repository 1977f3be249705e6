"""Reports reach the right process, in order, without waiting for one that does not read."""

from __future__ import annotations

import asyncio
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
import pytest_asyncio
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.ipc import report_channel as reports
from voxgate.pipeline.ipc.records import HEADER, HEARTBEAT, MAX_PROCESSES
from voxgate.pipeline.ipc.report_channel import MAX_PACKET_BYTES, ReportReceiver, ReportSender

GROUPS = 16


def frames(owner: int, numbers: range) -> bytes:
    records = np.zeros((len(numbers), HEADER + GROUPS), np.int32)
    records[:, 1], records[:, 2] = MAX_PROCESSES + owner, numbers
    return records.tobytes()


class Receivers:
    """A receiver per process, with the messages that each got, and the sender."""

    def __init__(self, owners: int) -> None:
        name = f"voxgate-test-{uuid.uuid4().hex}"
        self.addresses = [f"{name}-{owner}" for owner in range(owners)]
        self.messages: list[list[bytes]] = [[] for _ in range(owners)]
        self.open_receivers: dict[int, ReportReceiver] = {}
        self.reports = ReportSender(self.addresses, GROUPS)
        self._news = asyncio.Event()

    def open(self, owner: int) -> ReportReceiver:
        def take(message: bytes) -> None:
            self.messages[owner].append(message)
            self._news.set()

        self.open_receivers[owner] = ReportReceiver(self.addresses[owner], take)
        return self.open_receivers[owner]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def numbers(self, owner: int) -> list[int]:
        records = np.frombuffer(b"".join(self.messages[owner]), np.int32).reshape(-1, HEADER + GROUPS)
        return list(records[:, 2].tolist())


@pytest_asyncio.fixture
async def receivers() -> AsyncIterator[Receivers]:
    receivers = Receivers(3)
    yield receivers
    receivers.reports.close()
    for receiver in receivers.open_receivers.values():
        receiver.close()


async def test_each_process_gets_its_own_reports(receivers: Receivers) -> None:
    receivers.open(0), receivers.open(1)
    receivers.reports.send(frames(1, range(2)) + frames(0, range(3)))
    receivers.reports.send(HEARTBEAT)
    await receivers.until(lambda: len(receivers.messages[0]) == 2 and bool(receivers.messages[1]))
    assert receivers.messages == [[frames(0, range(3)), HEARTBEAT], [frames(1, range(2))], []]


async def test_reports_to_absent_process_are_dropped(receivers: Receivers) -> None:
    receivers.open(1)
    receivers.reports.send(frames(2, range(4)))
    receivers.reports.send(frames(40, range(1)))
    receivers.reports.send(frames(1, range(1)))
    await receivers.until(lambda: bool(receivers.messages[1]))
    # It starts later and gets what is sent from then on.
    receivers.open(2)
    receivers.reports.send(frames(2, range(4, 6)))
    await receivers.until(lambda: bool(receivers.messages[2]))
    assert receivers.numbers(2) == [4, 5]


async def test_restarted_process_is_found_again(receivers: Receivers) -> None:
    receivers.open(1)
    receivers.reports.send(frames(1, range(1)))
    await receivers.until(lambda: len(receivers.messages[1]) == 1)
    receivers.open_receivers[1].close()
    receivers.open(1)
    receivers.reports.send(frames(1, range(1, 2)))
    await receivers.until(lambda: len(receivers.messages[1]) == 2)
    assert receivers.numbers(1) == [0, 1]


async def test_large_message_is_split_between_records(receivers: Receivers) -> None:
    receivers.open(0)
    rows = 5 * MAX_PACKET_BYTES // (4 * (HEADER + GROUPS))
    receivers.reports.send(frames(0, range(rows)))
    await receivers.until(lambda: sum(map(len, receivers.messages[0])) == len(frames(0, range(rows))))
    assert len(receivers.messages[0]) > 1
    assert receivers.numbers(0) == list(range(rows))


async def test_backlog_keeps_order_and_delays_no_other_process(receivers: Receivers) -> None:
    receivers.open(1)
    slow = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slow.bind(f"\0{receivers.addresses[2]}")
    slow.listen()
    # More than the kernel holds.
    sent = range(40_000)
    for begin in range(0, len(sent), 100):
        receivers.reports.send(frames(2, sent[begin : begin + 100]))
    receivers.reports.send(frames(1, range(1)))
    await receivers.until(lambda: bool(receivers.messages[1]))

    def read() -> bytes:
        with slow, slow.accept()[0] as sock:
            sock.settimeout(DEADLINE_S)
            came = b""
            while len(came) < len(sent) * 4 * (HEADER + GROUPS):
                came += sock.recv(MAX_PACKET_BYTES)
            return came

    receivers.messages[2].append(await asyncio.to_thread(read))
    assert receivers.numbers(2) == list(sent)


async def test_backlog_is_bounded(receivers: Receivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_BACKLOG_BYTES", 1 << 20)
    slow = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slow.bind(f"\0{receivers.addresses[0]}")
    slow.listen()
    for _ in range(100):
        receivers.reports.send(frames(0, range(800)))
    connection = receivers.reports._connections[0]
    assert 0 < connection._backlog_bytes <= 1 << 20
    slow.close()


async def test_backlog_thread_ends_when_sender_is_closed(receivers: Receivers) -> None:
    slow = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slow.bind(f"\0{receivers.addresses[0]}")
    slow.listen()
    sock, _ = None, receivers.reports.send(frames(0, range(100)))
    sock, _ = slow.accept()
    for _ in range(100):
        receivers.reports.send(frames(0, range(800)))
    (waiting,) = [thread for thread in threading.enumerate() if thread.name == "report-backlog"]
    receivers.reports.close()
    await asyncio.to_thread(waiting.join, DEADLINE_S)
    assert not waiting.is_alive()
    sock.close(), slow.close()


async def test_address_in_use_raises(receivers: Receivers) -> None:
    receivers.open(0)
    with pytest.raises(OSError, match="in use"):
        receivers.open(0)


async def test_closed_receiver_takes_no_more_reports(receivers: Receivers) -> None:
    receiver = receivers.open(0)
    receivers.reports.send(HEARTBEAT)
    await receivers.until(lambda: bool(receivers.messages[0]))
    receiver.close()
    receiver.close()
    receivers.reports.send(HEARTBEAT)
    assert receivers.messages[0] == [HEARTBEAT]
