"""Admission: slots, the fair bounded queue, and the capacity policy."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.errors import KeyLimit, Limit
from voxgate.gateway.session.admission import AdmissionQueue, CapacityPolicy, Ticket
from voxgate.gateway.settings import Settings
from voxgate.pipeline.capacity import UPDATE_S, Capacity, Stage
from voxgate.pipeline.errors import AtCapacity
from voxgate.pipeline.interface import EngineState
from voxgate.pipeline.step_times import LatencyCurve, StepTimes


class Bench:
    """An AdmissionQueue that records every call of `on_change` in order."""

    def __init__(self, slots: int = 1, queue: int = 8, key_limit: int | None = None, share: float = 1.0) -> None:
        self.slots = slots
        self.free_slots = 1000
        self.key_limit = key_limit
        self.callers: dict[str, Caller] = {}
        self.admission = AdmissionQueue(lambda: self.slots, queue, 3000, lambda: self.free_slots, share)
        self.granted: list[Ticket] = []
        self.moves: list[tuple[Ticket, int]] = []
        self.dropped: list[Ticket] = []

    def enqueue(self, key: str = "k", now_s: float = 0.0) -> Ticket:
        caller = self.callers.setdefault(key, Caller(key, KeyLimits(utterances=self.key_limit)))
        return self.admission.enqueue(caller, self._changed, now_s)

    def _changed(self, ticket: Ticket, now_s: float) -> None:
        if ticket.granted:
            assert ticket.granted_s == now_s
            self.granted.append(ticket)
        elif ticket.error is not None:
            self.dropped.append(ticket)
        else:
            self.moves.append((ticket, ticket.position))


def test_free_slot_is_granted_at_once() -> None:
    bench = Bench(slots=2)
    assert [bench.enqueue().granted for _ in range(3)] == [True, True, False]
    assert (bench.admission.active, bench.admission.queued) == (2, 1)
    assert bench.granted == [], "a slot granted by enqueue is not reported again"


def test_positions_decrease_and_every_change_is_reported() -> None:
    bench = Bench()
    holder, first, second = bench.enqueue(), bench.enqueue(), bench.enqueue()
    assert (first.position, second.position) == (1, 2)
    assert 0 < first.eta_ms < second.eta_ms
    bench.admission.release(holder, 1.0)
    assert bench.granted == [first]
    assert bench.moves == [(second, 1)]
    assert first.position == 0


def test_callers_take_turns() -> None:
    bench = Bench()
    holder = bench.enqueue("a")
    greedy = [bench.enqueue("a") for _ in range(3)]
    modest = [bench.enqueue("b") for _ in range(2)]
    assert [t.position for t in modest] == [1, 3], "the other caller has had its turn"
    assert [t.position for t in greedy] == [2, 4, 5]
    for held in (holder, modest[0], greedy[0], modest[1]):
        bench.admission.release(held, 1.0)
    assert bench.granted == [modest[0], greedy[0], modest[1], greedy[1]]


def test_caller_that_asks_again_after_a_refusal_keeps_its_turn() -> None:
    bench = Bench()
    holder = bench.enqueue("a")
    bench.enqueue("a")
    for again in range(3):
        refused = bench.enqueue("b", 3.0 * again)
        bench.admission.release(refused, refused.deadline_s)
    modest = bench.enqueue("b", 9.0)
    bench.admission.release(holder, 10.0)
    assert bench.granted == [modest], "the utterances of the other caller have waited longer, but it has had a turn"


def test_turns_of_absent_callers_are_forgotten() -> None:
    bench = Bench(slots=2)
    for number in range(100):
        bench.admission.release(bench.enqueue(str(number)), 1.0)
    assert bench.admission._last_turn == {}


def test_full_queue_refuses_with_a_retry_time() -> None:
    bench = Bench(queue=1)
    bench.enqueue()
    bench.enqueue()
    with pytest.raises(AtCapacity) as refused:
        bench.enqueue()
    assert refused.value.retry_after_ms is not None
    assert refused.value.retry_after_ms >= 250


def test_release_is_idempotent_for_slots_and_queued_tickets() -> None:
    bench = Bench()
    holder, waiting, last = bench.enqueue(), bench.enqueue(), bench.enqueue()
    bench.admission.release(waiting, 1.0)
    bench.admission.release(waiting, 1.0)
    assert last.position == 1
    bench.admission.release(holder, 1.0)
    bench.admission.release(holder, 1.0)
    assert (bench.granted, bench.admission.active) == ([last], 1)


def test_eta_follows_the_measured_hold_time() -> None:
    bench = Bench()
    for i in range(100):
        bench.admission.release(bench.enqueue(now_s=float(i)), i + 0.5)
    bench.enqueue(now_s=200.0)
    assert bench.enqueue(now_s=200.0).eta_ms == pytest.approx(500, rel=0.01)


def test_additional_slots_are_granted_by_admit() -> None:
    bench = Bench(slots=0)
    waiting = [bench.enqueue() for _ in range(3)]
    bench.slots = 2
    bench.admission.admit(1.0)
    assert bench.granted == waiting[:2]
    assert bench.moves[-1] == (waiting[2], 1)


def test_enqueue_first_grants_slots_that_became_free_meanwhile() -> None:
    bench = Bench(slots=1)
    _, waiting = bench.enqueue("a"), bench.enqueue("a")
    bench.slots = 3
    assert bench.enqueue("b").granted
    assert waiting.granted, "it does not wait for the next poll either"


def test_reduced_slots_stop_no_utterance_and_grant_none_until_enough_are_released() -> None:
    bench = Bench(slots=4)
    holders = [bench.enqueue() for _ in range(4)]
    waiting = bench.enqueue()
    usual_ms = waiting.eta_ms
    bench.slots = 2
    assert bench.enqueue().eta_ms == pytest.approx(4 * usual_ms), "two more slots have to be released first"
    bench.admission.release(holders[0], 1.0)
    bench.admission.release(holders[1], 1.0)
    assert bench.granted == []
    bench.admission.release(holders[2], 1.0)
    assert bench.granted == [waiting]


def test_unconfirmed_slot_counts_as_used() -> None:
    bench = Bench(slots=3)
    bench.free_slots = 1
    bench.enqueue()
    bench.free_slots = 0
    waiting = [bench.enqueue(), bench.enqueue()]
    assert not any(ticket.granted for ticket in waiting)
    bench.free_slots = 1
    bench.admission.admit(1.0)
    assert bench.granted == waiting[:1], "one slot that becomes free grants one ticket"


def test_deadline_is_the_maximum_wait() -> None:
    bench = Bench(slots=0)
    assert bench.enqueue(now_s=5.0).deadline_s == 8.0


def test_counts_hold_under_random_traffic() -> None:
    chance = random.Random(2)
    bench = Bench(slots=3, queue=6, share=0.5)
    open_tickets: list[Ticket] = []
    for now in range(5000):
        if chance.random() < 0.55:
            try:
                open_tickets.append(bench.enqueue(chance.choice("aaabc"), now))
            except AtCapacity:
                assert bench.admission.queued >= 3
        elif open_tickets:
            bench.admission.release(open_tickets.pop(chance.randrange(len(open_tickets))), now)
        assert all(ticket.closed for ticket in bench.dropped)
        open_tickets = [t for t in open_tickets if t.error is None]
        holding = [t for t in open_tickets if t.granted]
        waiting = [t for t in open_tickets if not t.granted]
        assert bench.admission.active == len(holding) <= 3
        assert bench.admission.queued == len(waiting) <= 6
        assert sorted(t.position for t in waiting) == list(range(1, len(waiting) + 1))
        shares = Counter(t.caller.name for t in holding)
        assert len(holding) == 3 or all(shares[t.caller.name] >= 2 for t in waiting), "no slot is free without a reason"
        assert [c.utterances for c in bench.callers.values()] == [
            sum(t.caller is c for t in open_tickets) for c in bench.callers.values()
        ]


def test_caller_holds_and_queues_at_most_its_limit() -> None:
    bench = Bench(slots=1, key_limit=2)
    holder, waiting = bench.enqueue("a"), bench.enqueue("a")
    with pytest.raises(KeyLimit, match="at most 2 active utterances"):
        bench.enqueue("a")
    assert not bench.enqueue("b").granted, "another caller is not affected"
    bench.admission.release(waiting, 0.0)
    bench.admission.release(waiting, 0.0)
    assert not bench.enqueue("a").granted
    with pytest.raises(KeyLimit):
        bench.enqueue("a")
    bench.admission.release(holder, 0.0)
    bench.enqueue("a")


def test_refused_ticket_does_not_count_against_the_caller() -> None:
    bench = Bench(slots=1, queue=0, key_limit=2)
    bench.enqueue("a")
    for _ in range(3):
        with pytest.raises(AtCapacity):
            bench.enqueue("a")
    assert bench.callers["a"].utterances == 1


def test_caller_that_is_alone_may_use_every_slot_and_place() -> None:
    bench = Bench(slots=4, queue=4, share=0.5)
    assert [bench.enqueue("a").granted for _ in range(8)] == [True] * 4 + [False] * 4


def test_caller_gets_no_slot_above_its_share_while_another_is_present() -> None:
    bench = Bench(slots=4, share=0.5)
    other = bench.enqueue("b")
    mine = [bench.enqueue("a") for _ in range(4)]
    assert [t.granted for t in mine] == [True, True, False, False]
    assert bench.enqueue("b").granted, "the other caller is below its share"
    bench.admission.release(mine[0], 1.0)
    assert mine[2].granted
    assert not mine[3].granted
    bench.admission.release(other, 2.0)
    assert not mine[3].granted, "one utterance of the other caller still speaks"


def test_caller_exceeds_its_share_while_enough_slots_stay_free_for_others() -> None:
    bench = Bench(slots=20, share=0.5)
    bench.enqueue("b")
    assert [bench.enqueue("a").granted for _ in range(20)] == [True] * 17 + [False] * 3
    assert [bench.enqueue("b").granted for _ in range(2)] == [True] * 2, "two were kept for callers below their share"


def test_slots_held_before_another_caller_came_are_not_taken_away() -> None:
    bench = Bench(slots=4, share=0.5)
    mine = [bench.enqueue("a", 0.0) for _ in range(6)]
    theirs = [bench.enqueue("b", 1.0) for _ in range(2)]
    assert [t.position for t in (*theirs, *mine[4:])] == [1, 2, 3, 4], "a is above its share"
    for ticket in mine[:2]:
        bench.admission.release(ticket, 2.0)
    assert bench.granted == theirs, "a has two slots left, which is its share"


def test_caller_is_limited_for_a_minute_after_another_was_refused() -> None:
    bench = Bench(slots=2, queue=0, share=0.5)
    mine = [bench.enqueue("a") for _ in range(2)]
    with pytest.raises(AtCapacity):
        bench.enqueue("b", 10.0)
    bench.admission.release(mine[0], 11.0)
    with pytest.raises(AtCapacity):
        bench.enqueue("a", 12.0)
    assert bench.enqueue("a", 71.0).granted


def test_caller_whose_ticket_waited_in_vain_counts_as_refused() -> None:
    bench = Bench(slots=2, share=0.5)
    mine = [bench.enqueue("a", 0.0) for _ in range(2)]
    waited = bench.enqueue("b", 1.0)
    bench.admission.release(waited, waited.deadline_s)
    bench.admission.release(mine[0], 5.0)
    assert not bench.enqueue("a", 6.0).granted


def test_full_queue_drops_the_newest_ticket_of_the_caller_with_most_for_one_with_fewer() -> None:
    bench = Bench(slots=1, queue=4, share=0.5)
    bench.enqueue("a")
    greedy = [bench.enqueue("a") for _ in range(4)]
    modest = bench.enqueue("b")
    assert bench.dropped == [greedy[3]]
    assert isinstance(greedy[3].error, AtCapacity)
    assert greedy[3].error.reached == Limit.QUEUE_SHARE
    assert greedy[3].error.retry_after_ms is not None
    assert (modest.position, [t.position for t in greedy[:3]]) == (1, [2, 3, 4])
    assert bench.admission.queued == 4
    bench.admission.release(greedy[3], 1.0)
    assert bench.admission.queued == 4, "a dropped ticket is closed"
    with pytest.raises(AtCapacity):
        bench.enqueue("a")


def test_full_queue_of_callers_with_equal_parts_refuses() -> None:
    bench = Bench(slots=1, queue=2, share=0.5)
    for name in "aab":
        bench.enqueue(name)
    with pytest.raises(AtCapacity):
        bench.enqueue("b")
    with pytest.raises(AtCapacity):
        bench.enqueue("c")
    assert not bench.dropped


def test_caller_has_at_most_its_share_of_the_queue_while_another_is_present() -> None:
    bench = Bench(slots=1, queue=4, share=0.5)
    bench.enqueue("b")
    for _ in range(2):
        bench.enqueue("a")
    with pytest.raises(AtCapacity, match="share of the places in the queue"):
        bench.enqueue("a")
    bench.enqueue("b")


def model(**changed: Any) -> Any:
    return SimpleNamespace(capacity=12, free_slots=3, state=EngineState.READY, voices=("heart", "michael"), **changed)


@pytest.mark.parametrize(("limit", "slots"), [(None, 12), (5, 5), (50, 12)])
def test_slots_are_the_smaller_of_limit_and_capacity(limit: int | None, slots: int) -> None:
    assert CapacityPolicy(Settings(active_utterances=limit), model()).slots() == slots


def test_no_slot_is_free_without_an_engine() -> None:
    engine = model()
    policy = CapacityPolicy(Settings(), engine)
    assert policy.free_slots() == 3
    engine.state = EngineState.DEAD
    assert policy.free_slots() == 0


class MeasuredModel:
    """A voice model whose state and capacity follow measured steps, as that of `QwenSynthesizer` do."""

    free_slots = 100

    def __init__(self) -> None:
        self.times = CountingStepTimes()
        self.measured = Capacity([Stage("talker", self.times, 64)], 64)
        self.now_s = 0.0
        for _ in range(20):
            self.times.record(8, 0.010, self.now_s)
        self.measured.commit_baseline(self.now_s)

    @property
    def capacity(self) -> int:
        return self.measured.utterances(self.now_s)

    @property
    def state(self) -> EngineState:
        overloaded = self.measured.overloaded(8, self.now_s)
        return EngineState.DEGRADED if overloaded else EngineState.READY


class CountingStepTimes(StepTimes):
    curves = 0

    def curve(self, now_s: float) -> LatencyCurve:
        self.curves += 1
        return super().curve(now_s)


def test_admissions_share_one_prediction_of_the_capacity() -> None:
    engine: Any = MeasuredModel()
    policy = CapacityPolicy(Settings(), engine)
    queue = AdmissionQueue(policy.slots, 8, 1000, policy.free_slots)
    caller = Caller("a", KeyLimits())
    engine.now_s = UPDATE_S
    before = engine.times.curves
    for number in range(20):
        engine.times.record(8, 0.010, engine.now_s)
        queue.release(queue.enqueue(caller, lambda *_: None, engine.now_s), engine.now_s)
        assert engine.state.speaks, "as the speech process asks for the status of its workers"
        assert engine.times.curves == before + 1, f"after {number + 1} utterances"
        engine.now_s += UPDATE_S / 30


def test_slots_of_the_next_engine_go_to_their_holders_first() -> None:
    free, changes = [2.0], list[str]()
    queue = AdmissionQueue(lambda: 2, 8, 1000, lambda: free[0])
    for name in "abc":
        queue.enqueue(Caller(name, KeyLimits()), lambda ticket, _: changes.append(ticket.caller.name), 0.0)
    free[0] = 0
    queue.admit(1.0)
    assert changes == []
    free[0] = 2.0
    queue.renew(2.0)
    assert changes == ["a", "b"]
    assert (queue.active, queue.queued) == (2, 1), "no slot counts twice"
