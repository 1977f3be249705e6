"""Judges admission by the rules of docs/limits.md ("Share of a caller"): which caller gets each slot and each refusal.

The rules are stated here on the tickets alone: which hold a slot, which wait, and which were refused when. How the
gateway keeps them is not looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from voxgate.gateway.access.caller import Caller
from voxgate.gateway.session.admission import AdmissionQueue, Ticket
from voxgate.gateway.session.lifecycle import State
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.transport.resumption import POLL_S
from voxgate.pipeline.errors import AtCapacity

PRESENCE_S = 60.0
"""A caller that was refused within this time is present: it is expected to ask again."""
DEADLINE_SLACK_S = 0.1
"""An utterance that leaves the queue so long before its deadline was refused: clocks of workers differ."""
RESERVE = 1 / 10
"""Part of the slots, at least one, that is kept for callers below their share."""
ABSENT_S = 2.1
"""Time for which a session may keep slots that others want while it has no connection."""
NEVER = -math.inf


class Witness:
    """Collects in `faults` what breaks a rule, and knows how much a caller may have."""

    def __init__(self, share: float) -> None:
        """`share` of a caller, as configured."""
        self.faults: list[str] = []
        self._share = share
        self._refused_s: dict[str, float] = {}

    def _limit(self, name: str, places: int, present: Iterable[str], now_s: float) -> int:
        """How many of `places` the caller may have now, while those `present` hold or want some."""
        refused = {other for other, at_s in self._refused_s.items() if now_s - at_s < PRESENCE_S}
        return math.ceil(self._share * places) if refused.union(present) - {name} else places


class SlotWitness(Witness):
    """Watches every ticket of `admission`.

    1. No more slots are granted than there are.
    2. While others are present, a caller gets a slot above its share only if the reserve stays free.
    3. Waiting callers take turns: the one whose last slot was granted longest ago comes first. A caller that neither
       holds nor waits for a slot loses its place in that order and comes in as one that has not had a turn.
    4. The utterances of one caller are served in their order, after those that go on with a speech.
    5. A caller below its share does not wait while a slot is free.
    6. An utterance is refused at once only if its caller has its share of the queue, or the queue is full and no other
       caller would keep as many places there after giving one up.
    7. A place is taken away only in a full queue, from the caller with most, for one that then has no more.
    8. No time in the queue ends while an utterance on hold or without text has had its slot without audio for as long,
       unless its client does not read or has lost its connection, which have limits of their own. Of the latter: none
       ends while a session has had a slot without a connection for `ABSENT_S` before it began, unless it is too short
       for the two looks after which such a session ends.
    """

    def __init__(
        self,
        admission: AdmissionQueue,
        sessions: Iterable[ServerSession],
        reads: Callable[[ServerSession], bool],
        absent_s: Callable[[ServerSession], float],
        share: float,
        places: int,
        wait_s: float,
    ) -> None:
        """`share`, `places` and `wait_s` as configured: of a caller, and in the queue. `sessions`: the open ones.

        `reads`: whether the client of a session reads. `absent_s`: for how long it has had no connection.
        """
        super().__init__(share)
        self._admission, self._sessions = admission, sessions
        self._reads, self._absent_s = reads, absent_s
        self._places, self._wait_s = places, wait_s
        self._tickets: dict[Ticket, bool] = {}
        """Those that hold or wait, in the order in which they asked, and whether they go on with a speech."""
        self._last_grant_s: dict[str, float] = {}
        """Of callers that hold or wait."""
        self._depth = 0
        """Calls under way: a change of one ticket can cause another."""
        self._enqueue, self._release = admission.enqueue, admission.release
        self._admit, self._grant = admission.admit, admission._grant
        admission.enqueue = self.enqueue  # type: ignore[method-assign]  # to see every call
        admission.release = self.release  # type: ignore[method-assign]
        admission.admit = self.admit  # type: ignore[method-assign]
        admission._grant = self.grant  # type: ignore[method-assign]

    # What admission does

    def enqueue(
        self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float, *, resumes: bool = False
    ) -> Ticket:
        before, asked = self._waiting(), list(self._tickets)
        places, taken, most = before[caller.name], before.total(), max(before.values(), default=0)
        share = self._share_of(caller.name, self._places, now_s)
        try:
            ticket: Ticket = self._call(now_s, self._enqueue, caller, on_change, now_s, resumes=resumes)
        except AtCapacity:
            self._refused_s[caller.name] = now_s
            if places < share and (taken < self._places or most >= places + 2):
                self._fault("a caller was refused though a place in the queue was due to it", caller.name, now_s)
            raise
        self._tickets[ticket] = resumes
        dropped = [each for each in asked if each.error is not None]
        for each in dropped:
            name = each.caller.name
            self._refused_s[name] = now_s
            if taken < self._places or before[name] < most or before[name] < places + 2:
                self._fault("a place in the queue was taken away without need", name, now_s)
        self._forget()
        if not self._depth:
            self._check_waiting(now_s)
        return ticket

    def release(self, ticket: Ticket, now_s: float) -> None:
        if not ticket.closed and not ticket.granted and now_s >= ticket.deadline_s - DEADLINE_SLACK_S:
            self._refused_s[ticket.caller.name] = now_s
            for starving in self._starving(now_s):
                self._fault(f"a time in the queue ended beside a slot without text ({starving})", "", now_s)
            for absent in self._absent(ticket, now_s):
                self._fault(f"a time in the queue ended beside a slot without a connection ({absent})", "", now_s)
        self._call(now_s, self._release, ticket, now_s)

    def admit(self, now_s: float) -> None:
        self._call(now_s, self._admit, now_s)

    def grant(self, ticket: Ticket, now_s: float) -> None:
        name = ticket.caller.name
        held, waiting, slots = self._held(), self._waiting(), self._admission.slots
        if held.total() >= slots:
            self._fault("more slots were granted than there are", name, now_s)
        above = held[name] + 1 > self._share_of(name, slots, now_s)
        if above and slots - held.total() - 1 < max(1, RESERVE * slots):
            self._fault("a caller got a slot above its share", name, now_s)
        last_s = self._last_grant_s.get(name, NEVER)
        for other in waiting:
            entitled = held[other] < self._share_of(other, slots, now_s)
            if other != name and entitled and self._last_grant_s.get(other, NEVER) < last_s:
                self._fault("a caller was passed over that had waited longer for a turn", other, now_s)
        overtaken = [each for each in self._before(ticket) if not each.granted and each.caller is ticket.caller]
        if overtaken and not self._tickets.get(ticket, False):
            self._fault("an utterance overtook another of its caller", name, now_s)
        self._grant(ticket, now_s)
        self._tickets.setdefault(ticket, False)  # known already if it waited
        self._last_grant_s[name] = now_s

    # What follows from it

    def _call(self, now_s: float, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._depth += 1
        try:
            return method(*arguments, **options)
        finally:
            self._depth -= 1
            self._forget()
            if not self._depth:
                self._check_waiting(now_s)

    def _check_waiting(self, now_s: float) -> None:
        held, slots = self._held(), self._admission.slots
        if min(slots - held.total(), self._admission._free_slots()) < 1:
            return
        for name in self._waiting():
            if held[name] < self._share_of(name, slots, now_s):
                self._fault("a caller below its share waits while a slot is free", name, now_s)

    def _starving(self, now_s: float) -> Iterator[str]:
        """Callers of utterances on hold or without text that have had slots for a whole wait without audio."""
        for session in self._sessions:
            for each in session.active if self._reads(session) and not session.backlog else ():
                granted_s = None if each.ticket is None else each.ticket.granted_s
                if granted_s is not None and each.has_slot and each.hold.since_s is not None:
                    if now_s - max(granted_s, each.hold.since_s) >= self._wait_s:
                        yield session._caller.name
                    continue
                if granted_s is None or each.state is not State.SPEAKING or each.outbox.next_samples is not None:
                    continue
                if each.speech is None or not each.speech.waiting_for_text:
                    continue
                if now_s - granted_s - each.sent_in_slot_s >= self._wait_s:
                    yield session._caller.name

    def _absent(self, waiting: Ticket, now_s: float) -> Iterator[str]:
        """Callers of sessions that have kept slots from others without a connection for too long.

        A session without a connection may also get one, for text that came before: that counts from its grant.
        """
        for session in self._sessions:
            tickets = [each.ticket for each in session.active if each.ticket is not None]
            granted_s = min((each.granted_s for each in tickets if each.granted_s is not None), default=math.inf)
            kept_s = min(now_s - granted_s, self._absent_s(session))
            if kept_s >= ABSENT_S + self._wait_s > ABSENT_S + 2 * POLL_S and waiting not in tickets:
                yield session._caller.name

    def _forget(self) -> None:
        self._tickets = {each: resumes for each, resumes in self._tickets.items() if not each.closed}
        present = {each.caller.name for each in self._tickets}
        self._last_grant_s = {name: at_s for name, at_s in self._last_grant_s.items() if name in present}

    def _held(self) -> Counter[str]:
        return Counter(each.caller.name for each in self._tickets if each.granted and not each.closed)

    def _waiting(self) -> Counter[str]:
        return Counter(each.caller.name for each in self._tickets if not each.granted and not each.closed)

    def _before(self, ticket: Ticket) -> list[Ticket]:
        """Open tickets that asked before that one."""
        tickets = [each for each in self._tickets if not each.closed]
        return tickets[: tickets.index(ticket)] if ticket in tickets else tickets

    def _share_of(self, name: str, places: int, now_s: float) -> int:
        return self._limit(name, places, (each.caller.name for each in self._tickets if not each.closed), now_s)

    def _fault(self, what: str, name: str, now_s: float) -> None:
        held, waiting = dict(self._held()), dict(self._waiting())
        state = f"{name} at {now_s - 1000:.3f} s: {held} hold, {waiting} wait, {self._admission.slots} slots"
        self.faults.append(f"{what} ({state})")
