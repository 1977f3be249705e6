"""The talker's engine as a process sees it that attached to it.

One engine serves several processes: the speech process starts it, and every other process runs generations in slots
leased to it. Such a process writes the slots' tables and receives its frames directly, and continues from a prefilled
prompt that is reserved for the slot; other requests to run a generation, and to abort one, pass through the speech
process (`ipc/engine_messages.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ..errors import AtCapacity, EngineLost
from ..ipc.engine_messages import AbortGeneration, Attach, Message, SubmitGeneration
from ..ipc.records import epoch_after
from ..ipc.report_channel import ReportReceiver
from ..ipc.slot_tables import SlotTables, TableShape
from ..ipc.wakeup import WakeupSender
from .generation import Generation
from .prompt_pool import claim_reserved
from .slot_owners import SlotOwner, SlotOwners

log = logging.getLogger(__name__)


class RemoteTalkerEngine:
    """Opens generations in slots leased to this process, until `lose`; belongs to the event loop.

    `send` sends the speech process a message. `on_loss` is called once, with the reason, when reports become
    unreadable. Raises OSError when the engine is gone already.
    """

    def __init__(self, attach: Attach, send: Callable[[Message], None], on_loss: Callable[[str], None]) -> None:
        self.shape = TableShape(*attach.shape)
        self.address = attach.reports
        """At which this process receives its frames; differs between engines."""
        self._tables = SlotTables.attach(self.shape, attach.tables)
        self._send, self._on_loss = send, on_loss
        self._process, self._epoch = attach.owner, attach.last_epoch
        self._owners: SlotOwners[Generation] = SlotOwners(self.shape.groups)
        self._requests: dict[int, asyncio.Future[int]] = {}
        self._prompt_rows: dict[int, int | None] = {}
        """Of leased slots, the row of a prefilled prompt that is reserved for the next generation."""
        self._lost = False
        self._receiver = ReportReceiver(attach.reports, self._receive)
        self._wakeup = WakeupSender(attach.wakeup_address)

    def open(self, slot: int) -> Generation:
        """A generation in a leased slot. Raises EngineLost; AtCapacity while the previous one has not released it."""
        if self._lost:
            raise EngineLost("the engine is not running")
        if slot in self._owners:
            raise AtCapacity("the engine has not released the slot yet")
        self._tables.control[slot] = 0
        self._epoch = epoch_after(self._epoch, self._process)
        generation = Generation(self._tables, slot, self._epoch, self)
        self._owners.add(generation)
        return generation

    def reserve(self, slot: int, prompt_row: int | None) -> None:
        """The row of a prefilled prompt is reserved for the next generation in a leased slot; None: no row is."""
        self._prompt_rows[slot] = prompt_row

    def end(self, epoch: int, steps: int | None) -> None:
        """The speech process reports that the engine ended a generation (`GenerationEnded`)."""
        request = self._requests.pop(epoch, None)
        if request is None or request.done():
            return
        if steps is None:
            request.set_exception(EngineLost("the talker's engine died"))
        else:
            request.set_result(steps)

    def lose(self, reason: str) -> None:
        """Ends the use of the engine; running generations end with EngineLost. Safe to call twice."""
        if self._lost:
            return
        self._lost = True
        self._receiver.close()
        self._wakeup.close()
        for generation in self._owners:
            generation.fail(EngineLost(reason))
        for request in self._requests.values():
            if not request.done():
                request.set_exception(EngineLost(reason))
        self._requests.clear()

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:
        """As `SlotEngine.run`; continues from the prefilled prompt that is reserved, if that begins alike."""
        row = self._prompt_rows.pop(slot, None)
        if claimed := row is not None and claim_reserved(self._tables, slot, row):
            # The speech process need not be asked, and is not waited for.
            self._wakeup.notify()
        ended = asyncio.get_running_loop().create_future()
        self._requests[epoch] = ended
        self._send(SubmitGeneration(slot, epoch, prompt_len, claimed))
        return asyncio.create_task(self._run(epoch, ended))

    async def _run(self, epoch: int, ended: asyncio.Future[int]) -> int:
        try:
            return await ended
        finally:
            self._requests.pop(epoch, None)

    def expect_utterance(self) -> None:
        """As `Synthesizer.expect_utterance`; the engine's loop is awake when the request follows."""
        self._tables.expected_s[self._process] = time.monotonic()
        self._wakeup.notify()

    def wake(self) -> None:
        """As `SlotEngine.wake`: once per turn of the event loop, for all generations."""
        self._wakeup.notify_soon()

    def request_release(self, owner: SlotOwner) -> None:
        """As `SlotEngine.request_release`."""
        self._send(AbortGeneration(owner.slot, owner.epoch))

    def free(self, owner: SlotOwner) -> None:
        """As `SlotEngine.free`. The tables stay as they are: the slot may be leased to another process already."""
        self._owners.remove(owner)

    def _receive(self, message: bytes) -> None:
        try:
            self._owners.deliver(message)
        except Exception:
            log.exception("detaching from the engine: malformed report")
            reason = "the talker's engine sent a malformed report"
            # The engine goes on, and the slots stay leased: what runs in them next must not find these there.
            for generation in self._owners:
                self.request_release(generation)
            self.lose(reason)
            self._on_loss(reason)
