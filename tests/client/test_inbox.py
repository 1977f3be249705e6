from __future__ import annotations

import asyncio

import pytest
from voxgate.client.inbox import Inbox


async def test_put_waits_while_full() -> None:
    inbox: Inbox[int] = Inbox(1)
    await inbox.put(1)
    second = asyncio.ensure_future(inbox.put(2))
    await asyncio.wait([second], timeout=0)
    assert not second.done()
    assert await inbox.get() == 1
    await second
    assert await inbox.get() == 2


async def test_get_waits_while_empty() -> None:
    inbox: Inbox[int] = Inbox(1)
    first = asyncio.ensure_future(inbox.get())
    await asyncio.wait([first], timeout=0)
    assert not first.done()
    await inbox.put(1)
    assert await first == 1


async def test_a_cancelled_get_loses_nothing() -> None:
    inbox: Inbox[int] = Inbox(1)
    first = asyncio.ensure_future(inbox.get())
    await asyncio.wait([first], timeout=0)
    await inbox.put(1)
    first.cancel()
    await asyncio.wait([first])
    assert await inbox.get() == 1


async def test_close_ends_behind_what_is_queued() -> None:
    inbox: Inbox[int] = Inbox(2)
    await inbox.put(1)
    inbox.close(ValueError("over"))
    assert await inbox.get() == 1
    with pytest.raises(ValueError, match="over"):
        await inbox.get()


async def test_the_first_close_decides() -> None:
    inbox: Inbox[int] = Inbox(1)
    inbox.close()
    inbox.close(ValueError("late"))
    assert await inbox.get() is None


async def test_discard_frees_a_waiting_writer() -> None:
    inbox: Inbox[int] = Inbox(1)
    await inbox.put(1)
    second = asyncio.ensure_future(inbox.put(2))
    await asyncio.wait([second], timeout=0)
    inbox.discard()
    await second
    assert await inbox.get() is None
