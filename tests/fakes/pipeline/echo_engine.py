"""An engine without a model: it makes one frame from each text token, as far as text and credit allow."""

from __future__ import annotations

import asyncio

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.errors import AtCapacity, EngineLost
from voxgate.pipeline.ipc.records import RecordFlag
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables, TableShape
from voxgate.pipeline.talker.generation import Generation
from voxgate.pipeline.talker.slot_owners import SlotOwner

GROUPS = 16
END_OF_TEXT = 30_000
PADDING = 30_001
"""Codes of frames behind the text: above every token, and not negative, as codes are."""


class EchoEngine:
    """Runs generations in the event loop, by the rules of the real engine.

    The first code of a frame is its text token, END_OF_TEXT or PADDING; the second code is the slot. Speech ends `tail`
    frames after the last text token. `frame_s`: time of a frame, seconds. `decodes_first`: the engine decodes first
    frames; the samples of their audio are then the number of the codec slot.
    """

    def __init__(
        self,
        *,
        slots: int = 2,
        text: int = 64,
        frames: int = 400,
        tail: int = 2,
        frame_s: float = 0.0,
        decodes_first: bool = False,
        early_end: int | None = None,
    ) -> None:
        self.tables, _ = SlotTables.create(TableShape(slots, 16 + text, text, frames, GROUPS, 8))
        self.free_slots = list(range(slots))
        self.opened: list[Generation] = []
        self.aborted: list[SlotOwner] = []
        self.texts: list[list[int]] = []
        """Text tokens of each finished generation."""
        self.seeds: list[int] = []
        """Of the generations that ran, in order."""
        self.dead = False
        self._tail, self._early_end = tail, early_end
        self._frame_s, self._decodes_first = frame_s, decodes_first
        self._news = asyncio.Event()

    def open(self) -> Generation:
        if self.dead:
            raise EngineLost("the engine is not running")
        if not self.free_slots:
            raise AtCapacity("every talker slot is in use")
        slot = self.free_slots.pop()
        self.tables.control[slot] = 0
        self.opened.append(Generation(self.tables, slot, len(self.opened) + 1, self))
        return self.opened[-1]

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:
        row = self.tables.control[slot]
        assert prompt_len == row[Field.PREFIX_LEN] + 1 + row[Field.PAST_FRAMES]
        self.seeds.append(int(row[Field.SEED]))
        return asyncio.create_task(self._run(self.opened[epoch - 1]))

    def wake(self) -> None:
        self._news.set()

    def request_release(self, owner: SlotOwner) -> None:
        self.aborted.append(owner)
        asyncio.get_running_loop().call_soon(owner.on_released)

    def free(self, owner: SlotOwner) -> None:
        assert owner.slot not in self.free_slots
        tokens = self.tables.control[owner.slot, Field.TEXT_LEN]
        self.texts.append(self.tables.text[owner.slot, :tokens].tolist())
        self.free_slots.append(owner.slot)

    def die(self) -> None:
        """End the engine; running generations fail."""
        self.dead = True
        self.wake()

    async def _run(self, generation: Generation) -> int:
        row = self.tables.control[generation.slot]
        frame = past = int(row[Field.PAST_FRAMES])
        while True:
            while not (frame < row[Field.CREDIT] and (frame < self._text_frames(row) or row[Field.CLOSED])):
                await self._next_news()
            await asyncio.sleep(self._frame_s)
            if self.dead:
                raise EngineLost("the talker's engine died")
            assert row[Field.EPOCH] == generation.epoch
            flags = self._flags(frame, row)
            codes = self._codes(generation.slot, frame, row)
            if self._decodes_first and not frame and row[Field.CODEC_SLOT]:
                generation.on_record(frame, int(RecordFlag.DECODED), codes)
                generation.on_audio(np.full(FRAME_SAMPLES, abs(row[Field.CODEC_SLOT]) - 1, np.float32))
            else:
                generation.on_record(frame, flags, codes)
            frame += 1
            if flags:
                return frame - past

    async def _next_news(self) -> None:
        if self.dead:
            raise EngineLost("the talker's engine died")
        self._news.clear()
        await self._news.wait()

    def _flags(self, frame: int, row: np.ndarray) -> int:
        if frame == self._early_end:
            return int(RecordFlag.END)
        if not row[Field.CLOSED]:
            return 0
        if frame >= max(2, self._text_frames(row) + self._tail):
            return int(RecordFlag.END)
        return int(RecordFlag.END | RecordFlag.CAPPED) if frame >= row[Field.FRAME_CAP] else 0

    @staticmethod
    def _text_frames(row: np.ndarray) -> int:
        """Frames that the text suffices for."""
        return int(row[Field.TEXT_LEN] - row[Field.TEXT_LEAD])

    def _codes(self, slot: int, frame: int, row: np.ndarray) -> np.ndarray:
        codes, frames = np.zeros(GROUPS, np.int32), self._text_frames(row)
        codes[1] = slot
        if frame < frames:
            codes[0] = self.tables.text[slot, frame + row[Field.TEXT_LEAD]]
        else:
            codes[0] = END_OF_TEXT if frame == frames else PADDING
        return codes
