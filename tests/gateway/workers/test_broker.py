"""The account of a worker: fair admission over all of them, and everything given back."""

from __future__ import annotations

import asyncio
from typing import Any

from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.errors import KeyLimit, Limit
from voxgate.gateway.session.admission import AdmissionQueue, Ticket
from voxgate.gateway.workers.broker import Broker, CallerRegistry
from voxgate.gateway.workers.messages import Join, Leave, Status, TicketGranted, TicketMoved, TicketRefused
from voxgate.gateway.workers.remote_admission import RemoteAdmission
from voxgate.pipeline.errors import AtCapacity, EngineLost, EngineNotReady
from voxgate.pipeline.interface import LeasedSlots
from voxgate.pipeline.ipc.engine_messages import AbortGeneration, GenerationEnded, Message, SubmitGeneration
from voxgate.pipeline.talker.slot_lease import SlotLease, TalkerSlotLease
from voxgate.pipeline.talker.slot_owners import SlotOwner

from ...fakes.virtual_time import run


class Engine:
    """Lends two slots; runs what it is told to until `end`."""

    def __init__(self, slots: int = 2) -> None:
        self.free_seats = list(range(slots))
        self.free_codec = list(range(10, 10 + 2 * slots))
        self.requests: dict[int, asyncio.Future[int]] = {}
        self.asked: list[int] = []
        self.prompt_rows: list[int] = []
        """Rows of prefilled prompts to reserve."""
        self.taken_over: list[int] = []
        self.given_back: list[int] = []
        self.claimed_rows: list[int] = []
        self.runs = True

    def lease(self) -> SlotLease:
        if not self.runs:
            raise EngineNotReady("it does not run")
        codec = self.free_codec.pop(0)
        lease = TalkerSlotLease(self.free_seats.pop(0), self, self.prompt_rows.pop() if self.prompt_rows else None)
        return SlotLease(lease, codec, lambda: self.free_codec.append(codec))

    def take_over(self, row: int) -> asyncio.Task[int] | None:
        self.taken_over.append(row)
        return self.run(0, row, 0)

    def give_back(self, row: int) -> asyncio.Task[int] | None:
        self.given_back.append(row)
        return self.run(0, row, 0) if row in self.claimed_rows else None

    def written_epoch(self, slot: int) -> int:
        return 193 + slot

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:  # noqa: ARG002 - the engine's signature
        async def request() -> int:
            self.requests[epoch] = asyncio.get_running_loop().create_future()
            return await self.requests[epoch]

        return asyncio.create_task(request())

    def request_release(self, owner: SlotOwner) -> None:
        self.asked.append(owner.slot)

    def free(self, owner: SlotOwner) -> None:
        self.free_seats.append(owner.slot)


class House:
    """An admission with several desks, and what each was told."""

    def __init__(self, desks: int = 2, slots: int = 2, queue: int = 8) -> None:
        self.engine = Engine(slots)
        self.admission = AdmissionQueue(lambda: slots, queue, 3000, lambda: len(self.engine.free_seats))
        callers = CallerRegistry()
        self.said: list[list[Message]] = [[] for _ in range(desks)]
        self.desks = [Broker(self.admission, callers, self, said.append) for said in self.said]

    def lease(self) -> SlotLease:
        return self.engine.lease()

    def granted(self) -> list[tuple[int, int]]:
        """(broker, ticket) of all that were let in."""
        return [
            (at, word.ticket) for at, said in enumerate(self.said) for word in said if isinstance(word, TicketGranted)
        ]


def test_the_queue_takes_turns_between_callers_of_all_workers() -> None:
    house = House(slots=1)
    first, second = house.desks
    first.join(Join(1, "ada", None), 0.0)
    for ticket in (2, 3):
        first.join(Join(ticket, "ada", None), 0.0)
    second.join(Join(1, "bob", None), 0.0)
    assert house.said[0][0] == TicketGranted(1, (0, 10, None))
    assert [word.position for word in house.said[0] if isinstance(word, TicketMoved)] == [1, 2, 2, 3]
    assert [word.position for word in house.said[1] if isinstance(word, TicketMoved)] == [1]
    told: list[tuple[int, int]] = []
    for number, ticket in ((0, 1), (1, 1), (0, 2), (0, 3)):
        house.desks[number].leave(ticket, 1.0)
        told += [each for each in house.granted() if each not in told]
    assert told == [(0, 1), (1, 1), (0, 2), (0, 3)]
    assert house.admission.queued == house.admission.active == 0


def test_reserved_prompt_comes_with_the_slot_and_its_claim_with_the_request() -> None:
    async def scene() -> None:
        house = House()
        house.engine.prompt_rows = [90, 91]
        mine, _ = house.desks
        mine.join(Join(1, "ada", None), 0.0)
        mine.join(Join(2, "ada", None), 0.0)
        assert house.said[0] == [TicketGranted(1, (0, 10, 91)), TicketGranted(2, (1, 11, 90))]
        mine.on_message(SubmitGeneration(0, 65, 9, claimed=True), 0.0)
        mine.on_message(SubmitGeneration(1, 129, 9), 0.0)
        await asyncio.sleep(0.01)
        assert (house.engine.taken_over, house.engine.given_back) == ([91], [90])
        assert set(house.engine.requests) == {91, 129}, "the claimed row's request is the generation's"
        house.engine.requests[91].set_result(7)
        await asyncio.sleep(0.01)
        assert house.said[0][-1] == GenerationEnded(65, 7)
        mine.on_worker_ended(1.0)
        await asyncio.sleep(0.01)

    run(scene())


def test_epoch_of_a_claim_that_was_not_reported_is_not_used_again() -> None:
    async def scene() -> None:
        house = House()
        house.engine.prompt_rows = [90]
        mine, _ = house.desks
        house.engine.claimed_rows = [90]
        mine.join(Join(1, "ada", None), 0.0)
        mine.on_worker_ended(1.0)
        assert mine.last_epoch == 193
        await asyncio.sleep(0.01)
        assert house.engine.asked == [0], "the claimed request is aborted"

    run(scene())


def test_a_callers_limit_holds_over_all_workers() -> None:
    house = House(slots=2)
    for number, broker in enumerate(house.desks):
        broker.join(Join(number, "ada", 2), 0.0)
    house.desks[1].join(Join(7, "ada", 2), 0.0)
    (refused,) = [word for word in house.said[1] if isinstance(word, TicketRefused)]
    assert (refused.ticket, refused.code) == (7, KeyLimit.code)
    house.desks[0].leave(0, 1.0)
    house.desks[1].join(Join(8, "ada", 2), 1.0)
    assert (1, 8) in house.granted()


def test_full_queue_refuses_and_lost_engine_grants_no_slot() -> None:
    house = House(slots=1, queue=0)
    house.desks[0].join(Join(1, "ada", None), 0.0)
    house.desks[1].join(Join(1, "bob", None), 0.0)
    (refused,) = house.said[1]
    assert isinstance(refused, TicketRefused)
    assert refused.code == AtCapacity.code
    assert refused.retry_after_ms
    house.desks[0].leave(1, 0.0)
    house.engine.runs = False
    house.desks[1].join(Join(2, "bob", None), 0.0)
    assert house.said[1][-1] == TicketGranted(2, None)


def test_ticket_that_gives_way_to_another_caller_is_refused_in_its_worker() -> None:
    house = House(slots=1, queue=3)
    first, second = house.desks
    for ticket in range(4):
        first.join(Join(ticket, "ada", None), 0.0)
    second.join(Join(1, "bob", None), 0.0)
    refused = house.said[0][-1]
    assert isinstance(refused, TicketRefused)
    assert (refused.ticket, refused.code) == (3, AtCapacity.code)
    first.leave(3, 1.0)
    assert (house.admission.active, house.admission.queued) == (1, 3)


def test_ended_worker_releases_everything() -> None:
    async def scene() -> None:
        house = House(slots=2)
        dead, alive = house.desks
        for ticket in (1, 2, 3):
            dead.join(Join(ticket, "ada", None), 0.0)
        alive.join(Join(1, "bob", None), 0.0)
        dead.submit(SubmitGeneration(0, 65, 9))
        await asyncio.sleep(0)
        dead.on_worker_ended(1.0)
        # What runs still has to be confirmed by the engine; the codec's slots linger.
        assert house.admission.active == 1
        assert house.granted() == [(0, 1), (0, 2), (1, 1)], "the third was the dead one's own"
        await asyncio.sleep(0.1)
        assert house.engine.asked == [0]
        assert len(house.engine.free_codec) == 1
        await asyncio.sleep(5)
        alive.leave(1, 2.0)
        assert sorted(house.engine.free_codec) == [10, 11, 12, 13]
        assert dead.last_epoch == 65
        dead.on_worker_ended(2.0)
        assert house.admission.active == 0

    run(scene())


def test_slot_of_a_lost_engine_is_not_taken_for_one_of_the_next() -> None:
    async def scene() -> None:
        house = House(desks=1, slots=2)
        (broker,) = house.desks
        broker.join(Join(1, "ada", None), 0.0)
        broker.on_message(SubmitGeneration(0, 65, 9), 0.0)
        await asyncio.sleep(0)
        lost, house.engine = house.engine, Engine()
        lost.requests[65].set_exception(EngineLost("it died"))
        await asyncio.sleep(0.01)
        assert house.said[0][-1] == GenerationEnded(65, None)
        broker.engine_lost()
        # The first one's listener is slow, so its ticket is still there when the next one speaks.
        broker.join(Join(2, "bob", None), 1.0)
        broker.engine_attached()
        broker.on_message(SubmitGeneration(0, 129, 9), 1.0)
        await asyncio.sleep(0)
        assert list(house.engine.requests) == [129]
        broker.on_message(Leave(1), 2.0)
        assert len(house.engine.free_seats) == 1, "what the other engine lent is not given back to this one"
        assert house.admission.active == 1

    run(scene())


def test_what_was_submitted_to_a_lost_engine_does_not_run_in_the_next() -> None:
    async def scene() -> None:
        house = House(desks=1, slots=2)
        (broker,) = house.desks
        broker.join(Join(1, "ada", None), 0.0)
        house.engine = Engine()
        broker.engine_lost()
        broker.join(Join(2, "bob", None), 1.0)
        said = list(house.said[0])
        broker.on_message(SubmitGeneration(0, 65, 9), 1.0)  # sent before the worker knew of the loss
        await asyncio.sleep(0)
        assert not house.engine.requests
        assert house.said[0] == said, "the worker's next generation may have the same epoch"
        broker.engine_attached()
        broker.on_message(SubmitGeneration(0, 129, 9), 2.0)
        await asyncio.sleep(0)
        assert list(house.engine.requests) == [129]

    run(scene())


def test_worker_can_use_only_its_own_slots() -> None:
    async def scene() -> None:
        house = House()
        mine, other = house.desks
        mine.join(Join(1, "ada", None), 0.0)
        other.on_message(SubmitGeneration(0, 66, 9), 0.0)
        assert house.said[1] == [GenerationEnded(66, None)]
        mine.on_message(SubmitGeneration(0, 65, 9), 0.0)
        await asyncio.sleep(0)
        mine.on_message(SubmitGeneration(0, 129, 9), 0.0)
        assert house.said[0][-1] == GenerationEnded(129, None), "one at a time"
        other.on_message(AbortGeneration(0, 65), 0.0)
        await asyncio.sleep(0)
        house.engine.requests[65].set_result(12)
        await asyncio.sleep(0.01)
        assert house.said[0][-1] == GenerationEnded(65, 12)
        mine.on_message(Leave(1), 1.0)
        assert house.engine.free_seats == [1, 0]

    run(scene())


# The other end


class Door:
    """A gate, what it said, and what its tickets heard."""

    def __init__(self, wait_ms: int = 3000) -> None:
        self.said: list[Message] = []
        self.heard: list[tuple[Any, ...]] = []
        self.gate = RemoteAdmission(wait_ms, self.said.append)

    def hear(self, ticket: Ticket, _: float) -> None:
        self.heard.append((ticket.granted, ticket.position, ticket.lease, ticket.error))


def test_ticket_has_no_position_before_the_first_answer() -> None:
    door, caller = Door(), Caller("ada", KeyLimits(utterances=4))
    ticket = door.gate.enqueue(caller, door.hear, 5.0)
    assert door.said == [Join(1, "ada", 4)]
    assert (ticket.granted, ticket.position, ticket.deadline_s, caller.utterances) == (False, 0, 8.0, 1)
    door.gate.on_message(TicketMoved(1, 2, 700), 5.1)
    door.gate.on_message(TicketGranted(1, (3, 9, None)), 5.2)
    assert door.heard == [(False, 2, None, None), (True, 0, LeasedSlots(3, 9), None)]
    door.gate.release(ticket, 6.0)
    door.gate.release(ticket, 6.0)
    assert door.said[1:] == [Leave(1)]
    assert caller.utterances == 0
    door.gate.on_message(TicketMoved(1, 1, 1), 6.1)
    assert len(door.heard) == 2, "its word came too late"


def test_zero_queue_wait_leaves_time_for_the_first_answer() -> None:
    door = Door(wait_ms=0)
    first, second = (door.gate.enqueue(Caller("ada", KeyLimits()), door.hear, 5.0) for _ in range(2))
    assert first.deadline_s > 6.0
    door.gate.on_message(TicketGranted(1, (3, 9, None)), 5.001)
    door.gate.on_message(TicketMoved(2, 1, 700), 5.001)
    assert first.granted
    assert second.deadline_s == 5.0, "that there is no room is known now"


def test_a_refusal_has_its_own_type() -> None:
    door = Door()
    ticket = door.gate.enqueue(Caller("ada", KeyLimits()), door.hear, 0.0)
    door.gate.on_message(TicketRefused(1, KeyLimit.code, "enough", 900, "key_utterances"), 0.1)
    assert isinstance(ticket.error, KeyLimit)
    assert (ticket.error.message, ticket.error.retry_after_ms) == ("enough", 900)
    assert ticket.error.reached == "key_utterances"


def test_status_sets_the_counts_of_all_workers() -> None:
    door = Door()
    door.gate.update_status(Status("ready", None, 8, 3, 2, 750))
    assert (door.gate.slots, door.gate.active, door.gate.queued) == (8, 3, 2)
    assert door.gate.capacity_error("no", Limit.QUEUE_WAIT).retry_after_ms == 750
