from __future__ import annotations

import asyncio

import pytest
from voxgate.client.event_queue import EventQueue


async def test_put_waits_while_the_queue_is_full() -> None:
    queue: EventQueue[int] = EventQueue(1)
    await queue.put(1)
    second = asyncio.ensure_future(queue.put(2))
    await asyncio.wait([second], timeout=0)
    assert not second.done()
    assert await queue.get() == 1
    await second
    assert await queue.get() == 2


async def test_get_waits_while_the_queue_is_empty() -> None:
    queue: EventQueue[int] = EventQueue(1)
    first = asyncio.ensure_future(queue.get())
    await asyncio.wait([first], timeout=0)
    assert not first.done()
    await queue.put(1)
    assert await first == 1


async def test_cancelled_get_loses_no_item() -> None:
    queue: EventQueue[int] = EventQueue(1)
    first = asyncio.ensure_future(queue.get())
    await asyncio.wait([first], timeout=0)
    await queue.put(1)
    first.cancel()
    await asyncio.wait([first])
    assert await queue.get() == 1


async def test_close_ends_after_the_queued_items() -> None:
    queue: EventQueue[int] = EventQueue(2)
    await queue.put(1)
    queue.close(ValueError("over"))
    assert await queue.get() == 1
    with pytest.raises(ValueError, match="over"):
        await queue.get()


async def test_only_the_first_close_counts() -> None:
    queue: EventQueue[int] = EventQueue(1)
    queue.close()
    queue.close(ValueError("late"))
    assert await queue.get() is None


async def test_discard_releases_a_waiting_put() -> None:
    queue: EventQueue[int] = EventQueue(1)
    await queue.put(1)
    second = asyncio.ensure_future(queue.put(2))
    await asyncio.wait([second], timeout=0)
    queue.discard()
    await second
    assert await queue.get() is None


async def test_items_are_removed_put_back_and_read_from_a_reopened_queue() -> None:
    queue: EventQueue[int] = EventQueue(10)
    for number in range(5):
        await queue.put(number)
    queue.close()
    odd = queue.remove(lambda number: number % 2 == 1)
    assert odd == [1, 3]
    queue.reopen()
    queue.put_back(odd)
    queue.append(9)
    queue.close()
    assert [await queue.get() for _ in range(7)] == [1, 3, 0, 2, 4, 9, None]


async def test_queue_that_ended_with_an_error_stays_ended() -> None:
    queue: EventQueue[int] = EventQueue(1)
    queue.close(ValueError("over"))
    queue.reopen()
    queue.append(1)
    with pytest.raises(ValueError, match="over"):
        await queue.get()
