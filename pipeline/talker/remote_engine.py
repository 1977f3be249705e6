"""The talker's engine as it is seen by a process that did not start it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..errors import AtCapacity, EngineLost
from ..ipc.engine_messages import AbortGeneration, Attach, Message, SubmitGeneration
from ..ipc.records import HEADER, RecordFlag, epoch_after, unpack_pcm, unpack_records
from ..ipc.report_channel import ReportReceiver
from ..ipc.slot_tables import Field, SlotTables, TableShape
from ..ipc.wakeup import WakeupSender
from .generation import Generation

log = logging.getLogger(__name__)


class RemoteTalkerEngine:
    """Opens generations in slots that were lent to this process, and hands each its frames.

    `send` tells the speech process. Until `close` or `lose`; then generations under way end with EngineLost. Raises
    OSError when the engine is gone already.
    """

    def __init__(self, attach: Attach, send: Callable[[Message], None]) -> None:
        self.shape = TableShape(*attach.shape)
        self.address = attach.reports
        """Where its frames come; no two engines have the same."""
        self._tables = SlotTables.attach(self.shape, attach.tables)
        self._send = send
        self._owner, self._epoch = attach.owner, attach.last_epoch
        self._live: dict[int, Generation] = {}
        self._requests: dict[int, asyncio.Future[int]] = {}
        self._wake_due = False
        self._lost = False
        self._inbox = ReportReceiver(attach.reports, self._receive)
        self._wakeup = WakeupSender(attach.wakeup_address)

    def open(self, slot: int) -> Generation:
        """The next generation in a slot lent to us. Raises EngineLost; AtCapacity while the one before holds it."""
        if self._lost:
            raise EngineLost("the engine is not running")
        if slot in self._live:
            raise AtCapacity("the engine has not given the slot back yet")
        self._tables.control[slot] = 0
        self._epoch = epoch_after(self._epoch, self._owner)
        generation = self._live[slot] = Generation(self._tables, slot, self._epoch, self)
        return generation

    def over(self, epoch: int, steps: int | None) -> None:
        """The speech process's word that the engine ended a generation."""
        request = self._requests.pop(epoch, None)
        if request is None or request.done():
            return
        if steps is None:
            request.set_exception(EngineLost("the talker's engine died"))
        else:
            request.set_result(steps)

    def lose(self, reason: str) -> None:
        """The engine is gone. Safe to call twice."""
        if self._lost:
            return
        self._lost = True
        self._inbox.close()
        self._wakeup.close()
        for generation in list(self._live.values()):
            generation.fail(EngineLost(reason))
        for request in self._requests.values():
            if not request.done():
                request.set_exception(EngineLost(reason))
        self._requests.clear()

    # What generations ask of their engine

    def submit(self, generation: Generation, prompt_len: int) -> asyncio.Task[int]:
        over = asyncio.get_running_loop().create_future()
        self._requests[generation.epoch] = over
        self._send(SubmitGeneration(generation.slot, generation.epoch, prompt_len))
        return asyncio.create_task(self._run(generation.epoch, over))

    async def _run(self, epoch: int, over: asyncio.Future[int]) -> int:
        try:
            return await over
        finally:
            self._requests.pop(epoch, None)

    def wake(self) -> None:
        """Have the engine look at its held generations again: once per turn of the event loop, for all of them."""
        if not self._wake_due:
            self._wake_due = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def _wake_now(self) -> None:
        self._wake_due = False
        self._wakeup.notify()

    def ask_release(self, generation: Generation) -> None:
        self._send(AbortGeneration(generation.slot, generation.epoch))

    def free(self, generation: Generation) -> None:
        if self._live.get(generation.slot) is generation:
            del self._live[generation.slot]
            self._tables.control[generation.slot, Field.EPOCH] = 0

    # What the engine reports

    def _receive(self, message: bytes) -> None:
        if (sound := unpack_pcm(message)) is not None:
            slot, epoch, pcm = sound
            if (generation := self._live.get(slot)) is not None and generation.epoch == epoch:
                generation.on_audio(pcm)
            return
        records = unpack_records(message, self.shape.groups)
        heads = records[:, :HEADER].tolist()
        for (slot, epoch, number, flags), codes in zip(heads, records[:, HEADER:], strict=True):
            generation = self._live.get(slot)
            # Records of an earlier owner of the slot may still be on their way.
            if generation is None or generation.epoch != epoch:
                continue
            if flags == RecordFlag.RELEASED:
                generation.released()
            else:
                generation.take(number, flags, codes)
