"""An engine that does what a test says, and a generation in it."""

from __future__ import annotations

import asyncio

import numpy as np
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.ipc.records import RecordFlag
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables, TableShape
from voxgate.pipeline.talker.generation import Generation, Sampling
from voxgate.pipeline.talker.prompt import Prompt
from voxgate.pipeline.talker.slot_owners import SlotOwner

SHAPE = TableShape(slots=2, prefix=9, text=6, frames=10, groups=2, hidden=3)
PROMPT = Prompt(
    text=(7, 8, 5),
    head=np.array([[-1, -1], [9, -1], [6, -1]], np.int32),
    context=np.array([[2, -1]], np.int32),
    layout=TextLayout.STREAMING,
    filler=6,
)
SAMPLING = Sampling(0.5, 40, 0.75, 1.25, 0.625, 30, 0.875, 2**62 + 3)
END = RecordFlag.END


class ScriptedEngine:
    """Does nothing by itself: the test decides when the request ends and when the slot is released."""

    def __init__(self) -> None:
        self.tables, _ = SlotTables.create(SHAPE)
        self.calls: list[str] = []
        self.prompt_len = 0
        self.freed: list[SlotOwner] = []
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.generation = Generation(self.tables, 1, 17, self)

    @property
    def row(self) -> np.ndarray:
        return self.tables.control[1]

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:
        self.calls.append("run")
        self.prompt_len = prompt_len
        assert slot == self.generation.slot
        # The engine reads these when it sees the new request.
        assert self.row[Field.EPOCH] == epoch == self.generation.epoch
        assert self.row[Field.TEXT_LEN] > 0

        async def request() -> int:
            return await self.outcome

        return asyncio.create_task(request())

    def wake(self) -> None:
        self.calls.append("wake")

    def request_release(self, owner: SlotOwner) -> None:
        assert owner is self.generation
        self.calls.append("request release")

    def free(self, owner: SlotOwner) -> None:
        self.freed.append(owner)


def frame(number: int) -> np.ndarray:
    return np.arange(4, dtype=np.int32) + 10 * number


def began() -> tuple[ScriptedEngine, Generation]:
    """A running generation with two text tokens."""
    engine = ScriptedEngine()
    generation = engine.generation
    generation.prepare(PROMPT, SAMPLING, 9)
    generation.feed([3, 4])
    return engine, generation


async def collect(generation: Generation) -> list[list[int]]:
    return [codes.tolist() async for codes in generation]
