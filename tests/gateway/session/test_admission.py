"""Slots and the fair, bounded queue."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.access.usage import Caller
from voxgate.gateway.errors import KeyLimit
from voxgate.gateway.session.admission import AdmissionQueue, CapacityPolicy, Ticket
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import AtCapacity
from voxgate.pipeline.interface import EngineState


class Desk:
    """An AdmissionQueue, and everything it told those who joined, in order."""

    def __init__(self, slots: int = 1, queue: int = 8, key_limit: int | None = None) -> None:
        self.slots = slots
        self.free_slots = 1000
        self.key_limit = key_limit
        self.callers: dict[str, Caller] = {}
        self.admission = AdmissionQueue(lambda: self.slots, queue, 3000, lambda: self.free_slots)
        self.granted: list[Ticket] = []
        self.moves: list[tuple[Ticket, int]] = []

    def join(self, key: str = "k", now_s: float = 0.0) -> Ticket:
        caller = self.callers.setdefault(key, Caller(key, KeyLimits(utterances=self.key_limit)))
        return self.admission.enqueue(caller, self._changed, now_s)

    def _changed(self, ticket: Ticket, now_s: float) -> None:
        if ticket.granted:
            assert ticket.granted_s == now_s
            self.granted.append(ticket)
        else:
            self.moves.append((ticket, ticket.position))


def test_free_slots_are_granted_at_once() -> None:
    desk = Desk(slots=2)
    assert [desk.join().granted for _ in range(3)] == [True, True, False]
    assert (desk.admission.active, desk.admission.queued) == (2, 1)
    assert desk.granted == [], "who is granted in join is not told again"


def test_the_queue_moves_up_and_everybody_is_told() -> None:
    desk = Desk()
    holder, first, second = desk.join(), desk.join(), desk.join()
    assert (first.position, second.position) == (1, 2)
    assert 0 < first.eta_ms < second.eta_ms
    desk.admission.release(holder, 1.0)
    assert desk.granted == [first]
    assert desk.moves == [(second, 1)]
    assert first.position == 0


def test_keys_take_turns() -> None:
    desk = Desk()
    holder = desk.join("a")
    greedy = [desk.join("a") for _ in range(3)]
    modest = desk.join("b")
    assert modest.position == 2, "right behind the other key's first"
    assert [t.position for t in greedy] == [1, 3, 4]
    desk.admission.release(holder, 1.0)
    desk.admission.release(greedy[0], 2.0)
    desk.admission.release(modest, 3.0)
    assert desk.granted == [greedy[0], modest, greedy[1]]


def test_a_full_queue_refuses_with_a_time() -> None:
    desk = Desk(queue=1)
    desk.join()
    desk.join()
    with pytest.raises(AtCapacity) as refused:
        desk.join()
    assert refused.value.retry_after_ms is not None
    assert refused.value.retry_after_ms >= 250


def test_leaving_twice_or_from_the_queue() -> None:
    desk = Desk()
    holder, waiting, last = desk.join(), desk.join(), desk.join()
    desk.admission.release(waiting, 1.0)
    desk.admission.release(waiting, 1.0)
    assert last.position == 1
    desk.admission.release(holder, 1.0)
    desk.admission.release(holder, 1.0)
    assert (desk.granted, desk.admission.active) == ([last], 1)


def test_the_estimate_learns_how_long_speech_takes() -> None:
    desk = Desk()
    for i in range(100):
        desk.admission.release(desk.join(now_s=float(i)), i + 0.5)
    desk.join(now_s=200.0)
    assert desk.join(now_s=200.0).eta_ms == pytest.approx(500, rel=0.01)


def test_more_slots_let_more_in() -> None:
    desk = Desk(slots=0)
    waiting = [desk.join() for _ in range(3)]
    desk.slots = 2
    desk.admission.admit(1.0)
    assert desk.granted == waiting[:2]
    assert desk.moves[-1] == (waiting[2], 1)


def test_fewer_slots_stop_nobody_and_let_nobody_in_until_enough_have_left() -> None:
    desk = Desk(slots=4)
    holders = [desk.join() for _ in range(4)]
    waiting = desk.join()
    usual_ms = waiting.eta_ms
    desk.slots = 2
    assert desk.join().eta_ms == pytest.approx(4 * usual_ms), "two more have to leave first"
    desk.admission.release(holders[0], 1.0)
    desk.admission.release(holders[1], 1.0)
    assert desk.granted == []
    desk.admission.release(holders[2], 1.0)
    assert desk.granted == [waiting]


def test_a_slot_whose_release_was_never_confirmed_counts_as_taken() -> None:
    desk = Desk(slots=3)
    desk.free_slots = 1
    desk.join()
    desk.free_slots = 0
    waiting = [desk.join(), desk.join()]
    assert not any(ticket.granted for ticket in waiting)
    desk.free_slots = 1
    desk.admission.admit(1.0)
    assert desk.granted == waiting[:1], "and one that came back lets in one"


def test_deadline_is_the_bounded_wait() -> None:
    desk = Desk(slots=0)
    assert desk.join(now_s=5.0).deadline_s == 8.0


def test_random_traffic_keeps_the_books() -> None:
    chance = random.Random(2)
    desk = Desk(slots=3, queue=6)
    open_tickets: list[Ticket] = []
    for now in range(5000):
        if chance.random() < 0.55:
            try:
                open_tickets.append(desk.join(chance.choice("abc"), now))
            except AtCapacity:
                assert desk.admission.queued == 6
        elif open_tickets:
            desk.admission.release(open_tickets.pop(chance.randrange(len(open_tickets))), now)
        holding = [t for t in open_tickets if t.granted]
        waiting = [t for t in open_tickets if not t.granted]
        assert desk.admission.active == len(holding) <= 3
        assert desk.admission.queued == len(waiting) <= 6
        assert sorted(t.position for t in waiting) == list(range(1, len(waiting) + 1))
        assert not waiting or len(holding) == 3, "nobody waits beside a free slot"


def test_a_key_holds_and_queues_no_more_than_its_limit_until_slots_come_back() -> None:
    desk = Desk(slots=1, key_limit=2)
    holder, waiting = desk.join("a"), desk.join("a")
    with pytest.raises(KeyLimit, match="at most 2 utterances"):
        desk.join("a")
    assert not desk.join("b").granted, "another key is not concerned"
    desk.admission.release(waiting, 0.0)
    desk.admission.release(waiting, 0.0)
    assert not desk.join("a").granted
    with pytest.raises(KeyLimit):
        desk.join("a")
    desk.admission.release(holder, 0.0)
    desk.join("a")


def test_a_refused_place_does_not_count_against_the_key() -> None:
    desk = Desk(slots=1, queue=0, key_limit=2)
    desk.join("a")
    for _ in range(3):
        with pytest.raises(AtCapacity):
            desk.join("a")
    assert desk.callers["a"].utterances == 1


def model(**changed: Any) -> Any:
    return SimpleNamespace(capacity=12, free_slots=3, state=EngineState.READY, voices=("slt", "rms"), **changed)


@pytest.mark.parametrize(("limit", "slots"), [(None, 12), (5, 5), (50, 12)])
def test_a_limit_takes_of_the_capacity_and_adds_nothing(limit, slots):
    assert CapacityPolicy(Settings(active_utterances=limit), model()).slots() == slots


def test_nobody_waits_for_a_slot_of_an_engine_that_is_gone():
    engine = model()
    room = CapacityPolicy(Settings(), engine)
    assert room.free_slots() == 3
    engine.state = EngineState.DEAD
    assert room.free_slots() == math.inf
