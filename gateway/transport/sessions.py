"""The open sessions of a process: reserves a slot for each socket, runs its session, drains all of them at shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from voxgate.pipeline.errors import AtCapacity, VoxgateError

from ..access.caller import Caller, Grant
from ..access.caller_share import CallerShare
from ..access.usage import SharedUsage, TokenBucket
from ..errors import SOCKETS_RETRY_MS, Draining, Limit, ResumeElsewhere, ResumeFailed
from ..messages.resumption import Resume
from ..observability.events import REFUSED, Observer
from ..session.admission import Admission
from ..session.ending import CROWDED, EXPIRED, LIFETIME, REVOKED
from ..session.protocol import WireProtocol
from ..session.session import ServerSession
from ..session.utterance_factory import UtteranceFactory
from ..shutdown import FINAL_GRACE_S
from .connection import Connection, Socket, SpeechCloser
from .resumption import LosableSocket, ResumableSocket
from .turn_budget import TURN_STEPS, TurnBudget

CALLER_RATE_FACTOR = 10
"""Messages a second of all sockets of a caller, per allowed message a second of one; more are read later."""
_IDLE_CLOSE_SPREAD_S = 0.5
"""Idle sockets close spread over this time, so that their clients do not all reconnect elsewhere at once."""

log = logging.getLogger(__name__)


class Sessions:
    """Open sessions, at most `Settings.sockets` at once, over WebSockets and plain HTTP alike.

    While several callers are present, each gets at most `Settings.caller_share` of them. When all are in use, the
    newest one without speech of the caller that has most makes room for a caller with fewer. With a `shared_usage`,
    both limits hold for all processes that share it; room is made by sockets of this process.
    """

    def __init__(
        self,
        factory: UtteranceFactory,
        admission: Admission,
        speech_closer: SpeechCloser,
        observer: Observer,
        shared_usage: SharedUsage | None = None,
    ) -> None:
        self._factory = factory
        self._admission = admission
        self._speech_closer = speech_closer
        self._observer = observer
        self._shared_usage = shared_usage
        self.steps = TurnBudget(TURN_STEPS)
        """What all sessions may do in one turn of the event loop."""
        # Dictionaries keep their order, so that a drain is the same in every run of a simulation.
        self._open: dict[ServerSession, None] = {}
        self._resumable: dict[str, tuple[ResumableSocket, ConnectionSlot]] = {}
        """By name of the session."""
        self._slots: dict[ConnectionSlot, None] = {}
        """Slots of this process's sockets, including those in their handshake."""
        self._share = CallerShare(factory.settings.caller_share)
        self._message_rates: WeakKeyDictionary[Caller, TokenBucket] = WeakKeyDictionary()
        """Rates of the messages of all sockets of a caller in this process."""
        self._drain_deadline_s: float | None = None
        """Deadline of the drain; None while new sockets are accepted."""
        self._empty = asyncio.Event()
        self._run_id = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[ServerSession]:
        return iter(tuple(self._open))

    @property
    def total_open(self) -> int:
        """Sockets of this gateway, over all its processes."""
        return len(self._slots) if self._shared_usage is None else self._shared_usage.open_sockets

    def count_by_protocol(self) -> Counter[str]:
        """Returns the number of this process's sessions by the name of their wire protocol."""
        return Counter(session.protocol_name for session in self._open)

    def leads_s(self) -> list[float]:
        """Returns, for each utterance that plays, the seconds of audio sent and not played yet."""
        now_s = asyncio.get_running_loop().time()
        return [lead_s for session in self._open for lead_s in session.leads_s(now_s)]

    @property
    def draining(self) -> bool:
        """Whether new sockets and utterances are refused because of a shutdown."""
        return self._drain_deadline_s is not None

    def check_capacity(self) -> None:
        """Raises Draining, AtCapacity."""
        self._check_accepting()
        if self.total_open >= (limit := self._factory.settings.sockets) and self._find_spare(0) is None:
            raise _at_capacity(limit)

    def reserve_slot(self, grant: Grant) -> ConnectionSlot:
        """Reserves a slot for a socket; its owner releases it, also when the socket never opens.

        Raises KeyLimit, Draining, AtCapacity; then nothing is reserved.
        """
        now_s, limit, caller = asyncio.get_running_loop().time, self._factory.settings.sockets, grant.caller
        caller.acquire_socket(now_s())
        try:
            self._check_accepting()
            self._check_share(caller, limit, now_s())
            if not self._acquire_place(limit) and not (self._close_spare(caller) and self._acquire_place(limit)):
                raise _at_capacity(limit)
        except VoxgateError as error:
            caller.release_socket(now_s())
            if isinstance(error, AtCapacity):
                self._share.refuse(caller.name, now_s())
            raise
        self._share.acquire(caller.name)

        def on_release() -> None:
            self._slots.pop(slot, None)
            self._share.release(caller.name)
            if self._shared_usage is not None:
                self._shared_usage.release_socket()
            caller.release_socket(now_s())

        slot = ConnectionSlot(grant, now_s(), on_release)
        self._slots[slot] = None
        return slot

    def _acquire_place(self, limit: int) -> bool:
        """Counts one more socket, of all processes; False when there are `limit`."""
        return len(self._slots) < limit if self._shared_usage is None else self._shared_usage.acquire_socket(limit)

    def _close_spare(self, caller: Caller) -> bool:
        """Closes a socket to make room for one of `caller`; returns whether there was one that may be closed."""
        slot = self._find_spare(self._share.held(caller.name))
        if slot is None or slot.session is None:
            return False
        log.info("a socket makes room for another caller", extra={"session": slot.session.name})
        slot.session.abort(CROWDED)
        slot.release()
        return True

    def _find_spare(self, held: int) -> ConnectionSlot | None:
        """The newest socket without speech of the caller that has most, for a caller that holds `held` sockets.

        That caller will have no more than the one that gives its socket.
        """

        def count(slot: ConnectionSlot) -> int:
            return self._share.held(slot.grant.caller.name)

        crowded = (slot for slot in reversed(self._slots) if count(slot) > held + 1)
        spare = (slot for slot in crowded if slot.session is not None and not slot.session.speaks)
        return max(spare, key=count, default=None)

    def _check_share(self, caller: Caller, limit: int, now_s: float) -> None:
        """Raises AtCapacity when the caller, whose new socket is counted, exceeds its share."""
        held = caller.open_sockets(now_s)
        others = self.total_open > held - 1
        allowed = self._share.limit(caller.name, limit, now_s, others=others)
        if allowed < limit and held > allowed:
            message = f"while other callers are present, one caller may have at most {allowed} open sockets"
            raise AtCapacity(message, retry_after_ms=SOCKETS_RETRY_MS, reached=Limit.SOCKET_SHARE)

    def _message_rate(self, caller: Caller) -> TokenBucket:
        if (rate := self._message_rates.get(caller)) is None:
            per_s = CALLER_RATE_FACTOR * self._factory.settings.messages_per_s
            rate = self._message_rates[caller] = TokenBucket(per_s)
        return rate

    def _check_accepting(self) -> None:
        if self.draining:
            raise Draining

    async def run(self, socket: Socket, slot: ConnectionSlot, protocol: WireProtocol) -> None:
        """Serves one socket until it is closed, then releases `slot`. Cancelling it ends every utterance."""
        caller, factory = slot.grant.caller, self._factory.for_key(slot.grant.key, slot.grant.key_hash)
        if not protocol.checkpoints:
            factory = factory.without_checkpoints()
        name = f"{self._run_id}-{next(self._numbers)}"
        resumable = self._make_resumable(name, socket, slot, protocol)
        socket = resumable or socket
        take_turn = partial(self.steps.enter, caller.name)
        connection = Connection(socket, self._speech_closer, take_turn, self._message_rate(caller).reserve)
        session = ServerSession(name, caller, factory, self._admission, protocol, connection.wake, self._observer)
        if resumable is not None:
            resumable.watcher = connection
        self._open[session] = None
        slot.session = session
        self._observer.session_opened(protocol.name, caller.key)
        if self.draining:  # the drain began during the handshake
            self._start_drain(session)
        if slot.revoked:
            session.abort(REVOKED)
        log.info("session opened", extra={"session": name, "key": caller.name})
        try:
            await connection.run(session)
        finally:
            slot.release()
            self._open.pop(session, None)
            if resumable is not None:
                del self._resumable[name]
                resumable.finish()
            if not self._open:
                self._empty.set()
            log.info("session closed", extra={"session": name, "code": socket.close_code})

    def _make_resumable(
        self, name: str, socket: Socket, slot: ConnectionSlot, protocol: WireProtocol
    ) -> ResumableSocket | None:
        """Lets the session of a client that can resume outlive `socket`, unless that is lost already."""
        if not protocol.resumable or slot.released or not isinstance(socket, LosableSocket):
            return None

        def contested() -> bool:
            session = slot.session
            return session is not None and session.holds_slot and self._admission.queued > session.queued

        within_s, caller = self._factory.settings.resume_s, slot.grant.caller.name
        resumable = ResumableSocket(name, socket, within_s, contested, self._observer, self.steps, caller)
        protocol.resumption = resumable
        self._resumable[name] = (resumable, slot)
        return resumable

    def resume(self, name: str, resume: Resume, grant: Grant, socket: LosableSocket) -> ResumableSocket:
        """Has `socket` replace the connection of the session `name`. Raises ResumeFailed, ResumeElsewhere.

        An error does not tell which sessions exist. A token that expires later than that of the session prolongs it.
        """
        if not name.startswith(f"{self._run_id}-"):
            raise ResumeElsewhere("this process does not have the session: connect again, to reach another one")
        found, slot = self._resumable.get(name, (None, None))
        try:
            if (
                found is None
                or slot is None
                or slot.grant.key_hash != grant.key_hash
                or not found.accepts(resume.token)
            ):
                raise ResumeFailed("no session can be resumed with this token")
            found.attach(socket, resume)
        except ResumeFailed:
            self._observer.resumption(REFUSED)
            raise
        slot.grant = replace(slot.grant, token_expires=grant.token_expires)
        return found

    def stop_waiting(self) -> None:
        """Ends sessions without a connection, and from now on every session with its connection."""
        for resumable, _ in self._resumable.values():
            resumable.stop_waiting()

    def stop_accepting(self) -> None:
        """Refuses new sockets from now on. Does not change a drain under way."""
        if self._drain_deadline_s is None:
            self._drain_deadline_s = asyncio.get_running_loop().time()

    async def drain(self, grace_s: float) -> None:
        """Refuses new sockets and utterances, lets active ones finish for `grace_s`, then closes the rest.

        Returns when every session is closed, at the latest `FINAL_GRACE_S` after the deadline.
        """
        log.info("draining %d sockets", len(self._open))
        self._drain_deadline_s = asyncio.get_running_loop().time() + grace_s
        for session in self:
            self._start_drain(session)
        if not await self._wait_empty(grace_s):
            for session in self:
                session.abort()
            await self._wait_empty(FINAL_GRACE_S)

    def close_revoked(self, is_revoked: Callable[[Grant], bool]) -> int:
        """Ends the utterances of clients whose grant is revoked, and closes their sockets; returns how many.

        A socket still in its handshake is closed as soon as its session is open.
        """
        slots = [slot for slot in self._slots if is_revoked(slot.grant)]
        for slot in slots:
            slot.revoked = True
            if slot.session is not None:
                slot.session.abort(REVOKED)
        return len(slots)

    def end_expired(self, has_expired: Callable[[Grant], bool], grace_s: float) -> None:
        """Drains sockets whose grant has expired, and those open for `Settings.socket_lifetime_s`.

        They are aborted `grace_s` after the call that found them.
        """
        now_s, lifetime_s = asyncio.get_running_loop().time(), self._factory.settings.socket_lifetime_s
        for slot in tuple(self._slots):
            if slot.session is None:
                continue
            if slot.deadline_s is not None:
                if now_s >= slot.deadline_s:
                    slot.session.abort(slot.ending)
                continue
            if has_expired(slot.grant):
                slot.ending = EXPIRED
            elif lifetime_s is not None and now_s - slot.opened_s >= lifetime_s:
                slot.ending = LIFETIME
            else:
                continue
            slot.deadline_s = now_s + grace_s
            slot.session.drain(round(grace_s * 1000), now_s, slot.ending)

    def _start_drain(self, session: ServerSession) -> None:
        assert self._drain_deadline_s is not None
        now_s = asyncio.get_running_loop().time()
        left_s = max(0.0, self._drain_deadline_s - now_s)
        idle_close_s = now_s + random.uniform(0, min(_IDLE_CLOSE_SPREAD_S, left_s))
        session.drain(round(left_s * 1000), idle_close_s)

    async def _wait_empty(self, timeout_s: float) -> bool:
        """Waits until no session is open; returns whether that happened within `timeout_s`."""
        if self._open:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._empty.wait()
        return not self._open


def _at_capacity(limit: int) -> AtCapacity:
    return AtCapacity(f"all {limit} sockets are in use", retry_after_ms=SOCKETS_RETRY_MS, reached=Limit.SOCKETS)


class ConnectionSlot:
    """A reserved socket of the gateway and of its caller; `on_release` gives both back."""

    def __init__(self, grant: Grant, opened_s: float, on_release: Callable[[], None]) -> None:
        self.grant = grant
        self.opened_s = opened_s
        self.session: ServerSession | None = None
        """The session of the socket; None during its handshake."""
        self.revoked = False
        """Whether the grant was revoked."""
        self.deadline_s: float | None = None
        """When the session is aborted, because its `ending` is due; None before that."""
        self.ending = EXPIRED
        self._on_release: Callable[[], None] | None = on_release

    @property
    def released(self) -> bool:
        return self._on_release is None

    def release(self) -> None:
        """Gives the slot back. Safe to call twice."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()
