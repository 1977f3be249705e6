"""The engine's reports on their way: to whom they concern, in order, past those who do not read."""

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


class Office:
    """Inboxes at addresses of their own, and what came into each."""

    def __init__(self, owners: int) -> None:
        name = f"voxgate-test-{uuid.uuid4().hex}"
        self.addresses = [f"{name}-{owner}" for owner in range(owners)]
        self.came: list[list[bytes]] = [[] for _ in range(owners)]
        self.inboxes: dict[int, ReportReceiver] = {}
        self.reports = ReportSender(self.addresses, GROUPS)
        self._news = asyncio.Event()

    def open(self, owner: int) -> ReportReceiver:
        def take(message: bytes) -> None:
            self.came[owner].append(message)
            self._news.set()

        self.inboxes[owner] = ReportReceiver(self.addresses[owner], take)
        return self.inboxes[owner]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def numbers(self, owner: int) -> list[int]:
        records = np.frombuffer(b"".join(self.came[owner]), np.int32).reshape(-1, HEADER + GROUPS)
        return list(records[:, 2].tolist())


@pytest_asyncio.fixture
async def office() -> AsyncIterator[Office]:
    office = Office(3)
    yield office
    office.reports.close()
    for inbox in office.inboxes.values():
        inbox.close()


async def test_everybody_gets_what_is_his(office: Office) -> None:
    office.open(0), office.open(1)
    office.reports.send(frames(1, range(2)) + frames(0, range(3)))
    office.reports.send(HEARTBEAT)
    await office.until(lambda: len(office.came[0]) == 2 and bool(office.came[1]))
    assert office.came == [[frames(0, range(3)), HEARTBEAT], [frames(1, range(2))], []]


async def test_nobody_waits_for_one_who_is_not_there(office: Office) -> None:
    office.open(1)
    office.reports.send(frames(2, range(4)))
    office.reports.send(frames(40, range(1)))
    office.reports.send(frames(1, range(1)))
    await office.until(lambda: bool(office.came[1]))
    # He comes later, and gets what comes from then on.
    office.open(2)
    office.reports.send(frames(2, range(4, 6)))
    await office.until(lambda: bool(office.came[2]))
    assert office.numbers(2) == [4, 5]


async def test_one_who_was_started_anew_is_found_again(office: Office) -> None:
    office.open(1)
    office.reports.send(frames(1, range(1)))
    await office.until(lambda: len(office.came[1]) == 1)
    office.inboxes[1].close()
    office.open(1)
    office.reports.send(frames(1, range(1, 2)))
    await office.until(lambda: len(office.came[1]) == 2)
    assert office.numbers(1) == [0, 1]


async def test_a_large_message_comes_in_parts_of_whole_records(office: Office) -> None:
    office.open(0)
    rows = 5 * MAX_PACKET_BYTES // (4 * (HEADER + GROUPS))
    office.reports.send(frames(0, range(rows)))
    await office.until(lambda: sum(map(len, office.came[0])) == len(frames(0, range(rows))))
    assert len(office.came[0]) > 1
    assert office.numbers(0) == list(range(rows))


async def test_what_is_not_read_in_time_is_kept_in_order_and_holds_up_nobody(office: Office) -> None:
    office.open(1)
    slow = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slow.bind(f"\0{office.addresses[2]}")
    slow.listen()
    # More than the kernel holds.
    sent = range(40_000)
    for begin in range(0, len(sent), 100):
        office.reports.send(frames(2, sent[begin : begin + 100]))
    office.reports.send(frames(1, range(1)))
    await office.until(lambda: bool(office.came[1]))

    def read() -> bytes:
        with slow, slow.accept()[0] as sock:
            sock.settimeout(DEADLINE_S)
            came = b""
            while len(came) < len(sent) * 4 * (HEADER + GROUPS):
                came += sock.recv(MAX_PACKET_BYTES)
            return came

    office.came[2].append(await asyncio.to_thread(read))
    assert office.numbers(2) == list(sent)


async def test_what_is_kept_has_a_bound(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_BACKLOG_BYTES", 1 << 20)
    slow = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slow.bind(f"\0{office.addresses[0]}")
    slow.listen()
    for _ in range(100):
        office.reports.send(frames(0, range(800)))
    way = office.reports._connections[0]
    assert 0 < way._backlog_bytes <= 1 << 20
    slow.close()


async def test_a_thread_that_waits_for_a_reader_ends_with_the_way(office: Office) -> None:
    slow = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slow.bind(f"\0{office.addresses[0]}")
    slow.listen()
    sock, _ = None, office.reports.send(frames(0, range(100)))
    sock, _ = slow.accept()
    for _ in range(100):
        office.reports.send(frames(0, range(800)))
    (waiting,) = [thread for thread in threading.enumerate() if thread.name == "report-backlog"]
    office.reports.close()
    await asyncio.to_thread(waiting.join, DEADLINE_S)
    assert not waiting.is_alive()
    sock.close(), slow.close()


async def test_an_address_is_taken_once(office: Office) -> None:
    office.open(0)
    with pytest.raises(OSError, match="in use"):
        office.open(0)


async def test_a_closed_inbox_takes_nothing_more(office: Office) -> None:
    inbox = office.open(0)
    office.reports.send(HEARTBEAT)
    await office.until(lambda: bool(office.came[0]))
    inbox.close()
    inbox.close()
    office.reports.send(HEARTBEAT)
    assert office.came[0] == [HEARTBEAT]
