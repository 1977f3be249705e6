"""A leased slot is free again only once the engine has confirmed it."""

from __future__ import annotations

import asyncio

import pytest
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.talker.slot_lease import MAX_PREFILL_S, TalkerSlotLease
from voxgate.pipeline.talker.slot_owners import SlotOwner

from ...fakes.virtual_time import run


class Engine:
    def __init__(self) -> None:
        self.request: asyncio.Future[int]
        self.asked: list[int] = []
        self.freed: list[int] = []
        self.prefilled: dict[int, asyncio.Task[int]] = {}
        """Requests of reserved rows that were claimed."""
        self.given_back: list[int] = []

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:  # noqa: ARG002 - the engine's signature
        self.request = asyncio.get_running_loop().create_future()

        async def wait() -> int:
            return await self.request

        return asyncio.create_task(wait())

    def request_release(self, owner: SlotOwner) -> None:
        self.asked.append(owner.epoch)

    def wake(self) -> None: ...

    def take_over(self, row: int) -> asyncio.Task[int] | None:
        return self.prefilled.pop(row, None)

    def give_back(self, row: int) -> asyncio.Task[int] | None:
        self.given_back.append(row)
        return self.prefilled.pop(row, None)

    def written_epoch(self, slot: int) -> int:  # noqa: ARG002 - the engine's signature
        return 193

    def free(self, owner: SlotOwner) -> None:
        self.freed.append(owner.slot)


def test_generations_follow_each_other_until_release_frees_slot() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine)
        for epoch in (65, 129):
            lease.submit(epoch, 30, over.append)
            assert lease.pending_prompt_positions == 30
            engine.request.set_result(epoch * 10)
            await asyncio.sleep(0.01)
        assert over == [650, 1290]
        assert lease.pending_prompt_positions == 0
        lease.release()
        assert engine.freed == [5]
        lease.submit(193, 30, over.append)
        assert over[-1] is None, "the lease has ended"

    run(scene())


def test_aborted_slot_is_free_when_engine_confirms() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine)
        lease.submit(65, 30, over.append)
        lease.abort(1)
        await asyncio.sleep(0.01)
        assert not engine.asked
        lease.abort(65)
        lease.release()
        await asyncio.sleep(0.01)
        assert (engine.asked, engine.freed, over) == ([65], [], [])
        lease.on_released()
        assert engine.freed == [5]

    run(scene())


def test_abort_after_end_is_confirmed_too() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine)
        lease.submit(65, 30, over.append)
        engine.request.set_result(7)
        await asyncio.sleep(0.01)
        lease.abort(65)
        assert engine.asked == [65]

    run(scene())


def test_engine_loss_ends_generation_and_prompt_counts_as_computed_in_time() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine)
        lease.submit(65, 30, over.append)
        await asyncio.sleep(MAX_PREFILL_S + 1)
        assert lease.pending_prompt_positions == 0
        engine.request.set_exception(EngineLost("gone"))
        await asyncio.sleep(0.01)
        assert over == [None]

    run(scene())


def test_generation_continues_from_the_row_that_its_process_has_claimed() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        engine.prefilled[9] = engine.run(0, 0, 0)
        lease = TalkerSlotLease(5, engine, 9)
        assert lease.prompt_row == 9
        prefilled = engine.request
        lease.submit(65, 30, over.append, claimed=True)
        assert engine.request is prefilled, "no further request runs"
        prefilled.set_result(7)
        await asyncio.sleep(0.01)
        assert over == [7]
        lease.submit(129, 30, over.append)
        assert engine.request is not prefilled
        assert engine.given_back == []

    run(scene())


def test_reserved_row_is_given_back_by_a_generation_that_does_not_use_it() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine, 9)
        lease.submit(65, 30, over.append)
        assert engine.given_back == [9]
        engine.request.set_result(7)
        await asyncio.sleep(0.01)
        lease.release()
        assert engine.given_back == [9]
        assert engine.freed == [5]

    run(scene())


def test_row_claimed_by_a_process_that_died_is_aborted_before_the_slot_is_free() -> None:
    async def scene() -> None:
        engine = Engine()
        engine.prefilled[9] = engine.run(0, 0, 0)
        request = engine.prefilled[9]
        lease = TalkerSlotLease(5, engine, 9)
        lease.release()
        await asyncio.sleep(0.01)
        assert request.cancelled()
        assert (engine.asked, engine.freed) == ([193], []), "of the generation that was not submitted"
        lease.on_released()
        assert engine.freed == [5]

    run(scene())


def test_abort_between_the_end_and_its_notice_is_confirmed() -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine)
        lease.submit(65, 30, over.append)
        await asyncio.sleep(0.01)
        request = lease._request
        assert request is not None
        request.add_done_callback(lambda _: lease.abort(65))
        request._callbacks.reverse()  # before the lease's own
        engine.request.set_result(7)
        await asyncio.sleep(0.01)
        assert (engine.asked, over) == ([65], [7])

    run(scene())


@pytest.mark.parametrize("aborted", [False, True])
def test_generation_submitted_behind_an_abort_waits_for_its_confirmation(aborted: bool) -> None:
    async def scene() -> None:
        engine, over = Engine(), []
        lease = TalkerSlotLease(5, engine)
        lease.submit(65, 30, over.append)
        lease.abort(65)
        await asyncio.sleep(0.01)
        # The other process has the confirmation already.
        lease.submit(129, 30, over.append)
        if aborted:
            lease.abort(129)
        lease.submit(193, 30, over.append)
        assert over == [None], "one can wait"
        assert engine.asked == [65]
        lease.on_released()
        await asyncio.sleep(0.01)
        assert lease.epoch == 129
        if aborted:
            assert engine.asked == [65, 129]
        else:
            engine.request.set_result(7)
            await asyncio.sleep(0.01)
            assert over == [None, 7]

    run(scene())
