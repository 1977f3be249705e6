"""The rules of slots and of sockets hold in random walks, and each rule that is broken on purpose is found.

Rule 8 of slots needs sessions with speech: `test_combinations` breaks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.virtual_time import run
from voxgate.gateway.access.caller import Caller, Grant
from voxgate.gateway.access.caller_share import CallerShare
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.errors import Limit
from voxgate.gateway.session.admission import AdmissionQueue, Ticket
from voxgate.gateway.settings import Settings
from voxgate.gateway.transport.sessions import ConnectionSlot, Sessions
from voxgate.pipeline.errors import AtCapacity

from .fairness import SlotWitness
from .fairness_of_places import SocketWitness

SHARE = 0.5
QUEUE, WAIT_S = 4, 3.0
SOCKETS = 6
STEPS = 150
SEEDS = range(200)
NAMES = ("a", "b", "c")
WEIGHTS = ((1, 1, 1), (3, 1, 0), (8, 1, 1))
"""How often each caller acts: what one caller gets with few others around is rare where all are as busy."""


def _callers() -> list[Caller]:
    return [Caller(name, KeyLimits()) for name in NAMES]


def _first_faults(play: Callable[[int], list[str]]) -> tuple[int, list[str]]:
    """The first seed with faults, and these."""
    return next(((seed, faults) for seed in SEEDS if (faults := play(seed))), (len(SEEDS), []))


# Slots


def _play_slots(kind: type[AdmissionQueue], seed: int) -> list[str]:
    """Faults of callers that ask for slots, keep them, wait in vain and leave, while the capacity changes."""
    chance = random.Random(seed)
    slots, now_s, callers, weights = chance.choice([1, 2, 5]), 1000.0, _callers(), chance.choice(WEIGHTS)
    asks = chance.choice([0.4, 0.7])
    admission = kind(lambda: slots, QUEUE, round(1000 * WAIT_S), caller_share=SHARE)
    witness = SlotWitness(admission, (), lambda _: True, lambda _: 0.0, SHARE, QUEUE, WAIT_S)
    tickets: list[Ticket] = []
    for _ in range(STEPS):
        now_s += chance.choice([0, 0, 0.1, 1, 70])
        tickets = [ticket for ticket in tickets if not ticket.closed]
        for ticket in [each for each in tickets if not each.granted and each.deadline_s <= now_s]:
            admission.release(ticket, now_s)
        tickets = [ticket for ticket in tickets if not ticket.closed]
        if not tickets or chance.random() < asks:
            (caller,) = chance.choices(callers, weights)
            with contextlib.suppress(AtCapacity):
                tickets.append(admission.enqueue(caller, lambda *_: None, now_s, resumes=chance.random() < 0.1))
        elif chance.random() < 0.9:
            admission.release(chance.choice(tickets), now_s)
        else:
            slots = chance.randint(1, 5)
            admission.admit(now_s)
    return witness.faults


class GrantsTooMany(AdmissionQueue):
    def _free(self) -> float:
        return super()._free() + 1


class KeepsNoReserve(AdmissionQueue):
    def _may_speak(self, name: str, now_s: float) -> bool:
        return super()._may_speak(name, now_s) or self._slots() > len(self._granted)


class ServesFirstComers(AdmissionQueue):
    def _by_turn(self) -> list[str]:
        return list(self._waiting)


class RemembersTurnsOfThoseWhoLeft(AdmissionQueue):
    def _close(self, ticket: Ticket) -> None:
        turn = self._last_turn.get(ticket.caller.name)
        super()._close(ticket)
        if turn is not None:
            self._last_turn[ticket.caller.name] = turn


class ServesTheNewestFirst(AdmissionQueue):
    def admit(self, now_s: float) -> None:
        for queue in self._waiting.values():
            queue.rotate(1)
        super().admit(now_s)


class GrantsOnlyToNewTickets(AdmissionQueue):
    def admit(self, now_s: float) -> None:
        """Forgets those that wait."""


class KeepsSlotsFromAll(AdmissionQueue):
    def _may_speak(self, name: str, now_s: float) -> bool:
        return super()._may_speak(name, now_s) and self._slots() > len(self._granted) + (self._slots() > 1)


class LimitsOneCallerThatIsAlone(AdmissionQueue):
    def _make_room(self, name: str, now_s: float) -> Ticket | None:
        if len(self._waiting.get(name, ())) >= SHARE * QUEUE:
            raise self._refusal(name, "", Limit.QUEUE, now_s)
        return super()._make_room(name, now_s)


class MakesNoRoom(AdmissionQueue):
    def _make_room(self, name: str, now_s: float) -> Ticket | None:
        if self._queued >= self._queue_length:
            raise self._refusal(name, "", Limit.QUEUE, now_s)
        return super()._make_room(name, now_s)


class DropsOneOfTheCallerWithFewest(AdmissionQueue):
    def _make_room(self, name: str, now_s: float) -> Ticket | None:
        if self._queued < self._queue_length:
            return super()._make_room(name, now_s)
        dropped = min(self._waiting.values(), key=len, default=deque[Ticket]())[-1]
        self._leave_queue(dropped)
        dropped.error = self._refusal(dropped.caller.name, "", Limit.QUEUE_SHARE, now_s)
        return dropped


class DropsBeforeTheQueueIsFull(AdmissionQueue):
    def _make_room(self, name: str, now_s: float) -> Ticket | None:
        longest = max(self._waiting.values(), key=len, default=None)
        if longest is None or self._queued < self._queue_length - 1:
            return super()._make_room(name, now_s)
        dropped = longest[-1]
        self._leave_queue(dropped)
        dropped.error = self._refusal(dropped.caller.name, "", Limit.QUEUE_SHARE, now_s)
        return dropped


def test_rules_of_slots_hold() -> None:
    assert _first_faults(lambda seed: _play_slots(AdmissionQueue, seed)) == (len(SEEDS), [])


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (GrantsTooMany, "more slots were granted than there are"),
        (KeepsNoReserve, "a caller got a slot above its share"),
        (ServesFirstComers, "a caller was passed over"),
        (RemembersTurnsOfThoseWhoLeft, "a caller was passed over"),
        (ServesTheNewestFirst, "an utterance overtook another"),
        (GrantsOnlyToNewTickets, "a caller below its share waits"),
        (KeepsSlotsFromAll, "a caller below its share waits"),
        (LimitsOneCallerThatIsAlone, "a caller was refused though a place in the queue was due"),
        (MakesNoRoom, "a caller was refused though a place in the queue was due"),
        (DropsOneOfTheCallerWithFewest, "a place in the queue was taken away without need"),
        (DropsBeforeTheQueueIsFull, "a place in the queue was taken away without need"),
    ],
)
def test_broken_rule_of_slots_is_found(kind: type[AdmissionQueue], fault: str) -> None:
    _, faults = _first_faults(lambda seed: _play_slots(kind, seed))
    assert any(each.startswith(fault) for each in faults), faults[:3]


# Sockets


class _Session:
    """A session that speaks or not, and ends when it is told to."""

    name = "a session"
    active = ()

    def __init__(self) -> None:
        self.speaks = False

    @property
    def _about_to_act(self) -> bool:
        return self.speaks

    def abort(self, _: object) -> None:
        """Ends later; its slot is released before."""


async def _play_sockets(kind: type[Sessions], seed: int) -> list[str]:
    """Faults of callers that open sockets, speak, fall silent and leave."""
    chance = random.Random(seed)
    settings = Settings(sockets=SOCKETS, caller_share=SHARE)
    nothing = cast(Any, None)
    sessions = kind(cast(Any, SimpleNamespace(settings=settings)), nothing, nothing, nothing)
    witness = SocketWitness(sessions, SHARE, SOCKETS)
    callers, weights, opens = _callers(), chance.choice(WEIGHTS), chance.choice([0.4, 0.7])
    longest_pause_s = chance.choice([1, 70])
    slots: list[ConnectionSlot] = []
    for _ in range(STEPS):
        await asyncio.sleep(chance.choice([0, 0, 1, longest_pause_s]))
        slots = [slot for slot in slots if not slot.released]
        slot = chance.choice(slots) if slots else None
        if slot is None or chance.random() < opens:
            with contextlib.suppress(AtCapacity):
                slots.append(sessions.reserve_slot(Grant(*chance.choices(callers, weights), rights=frozenset())))
        elif slot.session is None:
            slot.session = cast(Any, _Session())
        elif chance.random() < 0.5:
            session = cast(Any, slot.session)
            session.speaks = not session.speaks
        else:
            slot.release()
    for slot in slots:
        slot.release()
    return witness.faults


class OpensTooMany(Sessions):
    def _acquire_place(self, limit: int) -> bool:
        return super()._acquire_place(limit + 1)


class IgnoresSharesOfSockets(Sessions):
    def _check_share(self, caller: Caller, limit: int, now_s: float) -> None:
        """Allows everything."""


class LimitsACallerThatIsAlone(Sessions):
    def _check_share(self, caller: Caller, limit: int, now_s: float) -> None:  # noqa: ARG002 - the signature
        if caller.sockets > SHARE * limit:
            raise AtCapacity("", retry_after_ms=0, reached=Limit.SOCKET_SHARE)


class ClosesNoSocket(Sessions):
    def _close_spare(self, caller: Caller) -> bool:  # noqa: ARG002 - the signature
        return False


class ClosesTheOldestSocket(Sessions):
    def _find_spare(self, held: int) -> ConnectionSlot | None:
        self._slots = dict(reversed(self._slots.items()))
        found = super()._find_spare(held)
        self._slots = dict(reversed(self._slots.items()))
        return found


class ClosesOneThatSpeaks(Sessions):
    def _find_spare(self, held: int) -> ConnectionSlot | None:
        speaking = [each for each in self._slots if each.session is not None and each.session.speaks]
        return super()._find_spare(held) or next(iter(speaking), None)


class ClosesOneOfAnyCaller(Sessions):
    def _find_spare(self, held: int) -> ConnectionSlot | None:  # noqa: ARG002 - the signature
        return super()._find_spare(-1)


class ClosesBeforeAllAreInUse(Sessions):
    def reserve_slot(self, grant: Grant) -> ConnectionSlot:
        if self.total_open == SOCKETS - 1:
            self._close_spare(grant.caller)
        return super().reserve_slot(grant)


class _Forgetful(CallerShare):
    def refuse(self, caller: str, now_s: float) -> None:
        """Notes nothing."""


class ForgetsRefusedSockets(Sessions):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._share = _Forgetful(SHARE)


def _first_faults_of_sockets(kind: type[Sessions]) -> tuple[int, list[str]]:
    return _first_faults(lambda seed: run(_play_sockets(kind, seed)))


def test_rules_of_sockets_hold() -> None:
    assert _first_faults_of_sockets(Sessions) == (len(SEEDS), [])


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (OpensTooMany, "more sockets are open than there are places"),
        (IgnoresSharesOfSockets, "a caller got a socket above its share"),
        (LimitsACallerThatIsAlone, "a socket was refused though one was due"),
        (ClosesNoSocket, "a socket was refused though one was due"),
        (ClosesTheOldestSocket, "a socket was closed without need"),
        (ClosesOneThatSpeaks, "a socket was closed without need"),
        (ClosesOneOfAnyCaller, "a socket was closed without need"),
        (ClosesBeforeAllAreInUse, "a socket was closed without need"),
        (ForgetsRefusedSockets, "a caller got a socket above its share"),
    ],
)
def test_broken_rule_of_sockets_is_found(kind: type[Sessions], fault: str) -> None:
    _, faults = _first_faults_of_sockets(kind)
    assert any(each.startswith(fault) for each in faults), faults[:3]
