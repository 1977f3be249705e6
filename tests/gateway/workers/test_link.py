"""Batches of messages: what is packed comes out again, in whatever pieces it arrives."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from fakes.waiting import DEADLINE_S
from hypothesis import given
from hypothesis import strategies as st
from voxgate.gateway.workers import messages
from voxgate.gateway.workers.link import MAX_BACKLOG_BYTES, BatchReader, Link, LinkClosed, pack_batch
from voxgate.gateway.workers.messages import (
    Ask,
    Join,
    Leave,
    Listening,
    Status,
    TicketGranted,
    TicketMoved,
    TicketRefused,
    ToWorker,
    WorkerInit,
)
from voxgate.pipeline.ipc.engine_messages import AbortGeneration, Attach, Detach, GenerationEnded, SubmitGeneration

TO_WORKER = [
    WorkerInit("{}", "/voice", 3, 8000, "/proc/1/fd/4", b"\0secret"),
    Attach(3, 64, "/proc/1/fd/3", (8, 272, 256, 1000, 16, 8), "ipc://@reports", "bell", "jobs", 16, 21),
    Status("ready", None, 8, 3, 0, 500),
    TicketGranted(1, (4, 7, None)),
    TicketGranted(2, None),
    TicketMoved(3, 2, 1500),
    TicketRefused(4, "at_capacity", "no room", 250, "queue"),
    GenerationEnded(67, 12),
    GenerationEnded(131, None),
    Detach("lost"),
]
FROM_WORKER = [
    Listening(),
    Join(1, "ada", None),
    Join(2, "bob", 3),
    Leave(1),
    SubmitGeneration(4, 67, 20),
    AbortGeneration(4, 67),
]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_batches_are_decoded_from_any_pieces(pieces: list[int]) -> None:
    for kinds, sent in ((ToWorker, TO_WORKER), (messages.FromWorker, FROM_WORKER)):
        batches: BatchReader[Any] = BatchReader(kinds)
        stream = pack_batch(sent[:3]) + pack_batch(sent[3:])
        received = []
        for size in pieces:
            received += batches.feed(stream[:size])
            stream = stream[size:]
        received += batches.feed(stream)
        assert received == sent


@pytest.mark.parametrize(
    "stream",
    [b"\x02\0\0\0\xc1\xc1", pack_batch([AbortGeneration(4, 67)]), (MAX_BACKLOG_BYTES + 1).to_bytes(4, "little")],
)
def test_malformed_batches_are_refused(stream: bytes) -> None:
    with pytest.raises(ValueError, match="batch"):
        BatchReader(ToWorker).feed(stream)


class End:
    """One end of a link."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.gone = asyncio.Event()
        self.link: Link[Any] = Link(ToWorker, self.taken.append, self.answer, self.gone.set)

    async def answer(self, question: str) -> bytes:
        if question == "never":
            await asyncio.sleep(60)
        return question.upper().encode()


async def test_link_asks_answers_and_reports_the_end_of_the_other_side() -> None:
    ours, theirs = socket.socketpair()
    one, other = End(), End()
    await one.link.open(ours)
    await other.link.open(theirs)
    assert await one.link.ask("counts", 5) == b"COUNTS"
    one.link.send(TicketMoved(1, 1, 10))
    one.link.send(TicketGranted(1, (0, 0, None)))
    await one.link.ask("a round trip", 5)
    assert other.taken == [TicketMoved(1, 1, 10), TicketGranted(1, (0, 0, None))]
    with pytest.raises(TimeoutError):
        await one.link.ask("never", 0.01)
    waiting = asyncio.ensure_future(one.link.ask("never", 5))
    await asyncio.sleep(0)
    other.link.close()
    async with asyncio.timeout(DEADLINE_S):
        await one.gone.wait()
        with pytest.raises(LinkClosed):
            await waiting
        with pytest.raises(LinkClosed):
            await one.link.ask("anything", 5)
    one.link.send(Ask(1, "into the void"))


async def test_malformed_batch_closes_the_link() -> None:
    ours, theirs = socket.socketpair()
    one = End()
    await one.link.open(ours)
    theirs.send(b"\x02\0\0\0\xc1\xc1")
    async with asyncio.timeout(DEADLINE_S):
        await one.gone.wait()
    theirs.close()


async def test_messages_that_a_first_sample_waits_for_leave_before_the_turn_ends() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    one = End()
    await one.link.open(ours)
    reader: BatchReader[Any] = BatchReader(ToWorker)
    one.link.send(TicketMoved(1, 1, 10))
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    one.link.send(TicketGranted(1, (0, 0, None)))
    assert reader.feed(theirs.recv(1 << 16)) == [TicketMoved(1, 1, 10), TicketGranted(1, (0, 0, None))], "in order"
    one.link.send(TicketMoved(2, 1, 10))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.feed(theirs.recv(1 << 16)) == [TicketMoved(2, 1, 10)], "each once"
    theirs.close()


async def test_messages_stay_whole_and_in_order_when_the_socket_is_full() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)  # less than one message
    one, other = End(), End()
    await one.link.open(ours)
    sent: list[Any] = []
    for number in range(40):
        sent += [TicketRefused(number, "at_capacity", "x" * 20_000, 250, "queue"), TicketGranted(number, (0, 0, None))]
    for message in sent:
        one.link.send(message)
    await other.link.open(theirs)
    await one.link.ask("a round trip", DEADLINE_S)
    assert other.taken == sent
    one.link.send(TicketGranted(99, (0, 0, None)))
    one.link.close()
    async with asyncio.timeout(DEADLINE_S):
        await other.gone.wait()
    assert other.taken[-1] == TicketGranted(99, (0, 0, None))
