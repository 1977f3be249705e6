"""Turns over several processes."""

from __future__ import annotations

import asyncio
import sys
import uuid
from asyncio.subprocess import PIPE

import pytest
from voxgate.pipeline.cloning.turn import Turn


def a_name() -> str:
    return f"voxgate-test-{uuid.uuid4().hex}"


@pytest.mark.parametrize("name", [None, a_name()])
async def test_one_at_a_time(name: str | None) -> None:
    turn = Turn(name)
    others = turn if name is None else Turn(name)
    async with turn.taken(5):
        with pytest.raises(TimeoutError):
            async with others.taken(0.05):
                raise AssertionError("it is taken")
    async with others.taken(5):
        pass


async def test_who_waits_has_it_next() -> None:
    name = a_name()
    first, second = Turn(name), Turn(name)
    had: list[str] = []

    async def wait() -> None:
        async with second.taken(5):
            had.append("second")

    async with first.taken(5):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        had.append("first")
    await waiting
    assert had == ["first", "second"]


async def test_a_process_that_dies_gives_its_turn_back() -> None:
    name = a_name()
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + {name!r}); print(1, flush=True); input()"
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=PIPE, stdout=PIPE)
    assert holder.stdout is not None
    await holder.stdout.readline()
    with pytest.raises(TimeoutError):
        async with Turn(name).taken(0.05):
            raise AssertionError("it is taken")
    holder.kill()
    await holder.wait()
    async with Turn(name).taken(5):
        pass
