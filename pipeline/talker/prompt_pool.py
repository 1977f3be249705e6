"""Prompts computed before an utterance needs them, so that its first frame takes one step.

Utterances in the same voice begin with the same positions, those before the text. The pool keeps rows of the slot
tables behind the slots, each with such a prefix that the engine has computed already. One row's life:

1. `_fill` writes the prefix into an EMPTY row and requests its computation (COMPUTING). vLLM's request has the row as
   its token id, like a generation's has its slot, and stays in the engine afterwards without text or credit to step.
2. The scheduler reports that the prefix was computed (PREFILL): the row is READY.
3. A generation whose prompt has the same prefix claims the row (CLAIMED): `Field.SUCCESSOR` is set to its slot, the
   last of all stores, and the generation continues the row's request as its own. For a slot that another process has,
   the row is RESERVED when it gets the slot: that process claims it by itself and reports it (`take_over`).
4. The scheduler sees SUCCESSOR, replaces the request's token ids by the slot and counts it as the slot's. Until the
   request has made a step with the new ids, the model maps ids of the row to the slot as well.
5. The step that makes the first frame is over: the scheduler reports PREFILL again, and the row is EMPTY.

A READY row whose prefix has become rare is given up (ABORTING): its request is aborted, and the report that confirms
it makes the row EMPTY. A reservation that is not used makes the row READY again (`give_back`).

`_fill` runs some time after rows were used, so that one step computes several prefixes: after REFILL_DELAY_S, or after
URGENT_REFILL_DELAY_S when few rows are left or none has the newest prefix.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from ..ipc.slot_tables import Field, SlotTables

REFILL_DELAY_S = 0.2
"""Seconds until claimed rows are replaced: a step with prompts takes the host longer, and delays utterances that begin
then. A longer delay makes fewer such steps, of more prompts each; with 1 s, first samples came no earlier."""
URGENT_REFILL_DELAY_S = 0.05
"""The same where the next utterances might find no row: soon, and yet several rows of a burst at a time."""
MAX_PREFIX_POSITIONS = 64
"""Longer prefixes are not kept: they contain a reference or an instruction, which few utterances share."""


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """The part of a prompt before the text: rows of the prefix table as bytes, and what depends on their number."""

    prefix: bytes
    positions: int
    text_lead: int
    speaker: bytes = b""

    @classmethod
    def of(cls, tables: SlotTables, slot: int) -> PromptPrefix | None:
        """The prefix of a slot whose prompt is written; None if it depends on the text, is too long, or has frames."""
        positions, text_lead = (int(tables.control[slot, field]) for field in (Field.PREFIX_LEN, Field.TEXT_LEAD))
        if tables.control[slot, Field.PAST_FRAMES] or text_lead > 0 or not 0 < positions <= MAX_PREFIX_POSITIONS:
            return None
        prefix, speaker = tables.beginning(slot, positions)
        return cls(prefix, positions, text_lead, speaker)

    def write(self, tables: SlotTables, row: int) -> None:
        """Writes the prefix into a row that the engine does not read."""
        control = tables.control[row]
        control[:] = 0
        control[Field.PREFIX_LEN], control[Field.TEXT_LEAD] = self.positions, self.text_lead
        tables.prefix[row, : self.positions] = np.frombuffer(self.prefix, np.int32).reshape(self.positions, -1)
        if self.speaker:
            tables.speaker[row] = np.frombuffer(self.speaker, np.float32)


def claim_reserved(tables: SlotTables, slot: int, row: int) -> bool:
    """Claims a row of another process's pool that is reserved for `slot`, if the prompt in both begins alike.

    As `PrefilledPromptPool.claim`.
    """
    prefix = PromptPrefix.of(tables, slot)
    if prefix is None or prefix != PromptPrefix.of(tables, row):
        return False
    _set_successor(tables, row, slot)
    return True


def _set_successor(tables: SlotTables, row: int, slot: int) -> None:
    """From here on the engine takes the row's request for the slot's."""
    tables.control[row, Field.SUCCESSOR] = slot + 1


class _State(Enum):
    EMPTY = auto()
    COMPUTING = auto()
    READY = auto()
    RESERVED = auto()
    SPENT = auto()
    """The first frame that another process began in a RESERVED row is made, and `take_over` is still to come."""
    CLAIMED = auto()
    ABORTING = auto()


@dataclass(eq=False, slots=True)
class _Row:
    number: int
    state: _State = _State.EMPTY
    prefix: PromptPrefix | None = None
    request: asyncio.Task[int] | None = None


class PrefilledPromptPool:
    """Rows `first` to `first + count`, for the prefixes of recent utterances in proportion to their number.

    `prefill` runs a request for the given row and number of positions; its task resolves to the number of steps that
    follow, and cancelling it aborts the request. Belongs to the event loop.
    """

    def __init__(
        self, prefill: Callable[[int, int], asyncio.Task[int]], tables: SlotTables, first: int, count: int
    ) -> None:
        self._prefill, self._tables = prefill, tables
        self._rows = {number: _Row(number) for number in range(first, first + count)}
        self._recent: deque[PromptPrefix] = deque(maxlen=max(1, count))
        self._refill: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> int:
        """Rows that can be claimed."""
        return sum(row.state is _State.READY for row in self._rows.values())

    def claim(self, slot: int) -> asyncio.Task[int] | None:
        """The request that has computed this slot's prefix, if there is one; it makes the slot's frames from now on.

        Everything that the first step reads of the slot must be written before.
        """
        if not self._rows or (prefix := PromptPrefix.of(self._tables, slot)) is None:
            return None
        request = None
        if (row := self._find_ready(prefix)) is not None:
            row.state = _State.CLAIMED
            request, row.request = row.request, None
            _set_successor(self._tables, row.number, slot)
        self._note_use(prefix)
        return request

    def reserve(self) -> int | None:
        """A row with the newest prefix in use, for a slot of another process; None if there is none to spare.

        That process may set `Field.SUCCESSOR` until `take_over` or `give_back`. At most half of the rows are reserved
        with one prefix, and three quarters in all: reservations whose text never comes leave some for others.
        """
        if not self._recent:
            return None
        count, newest = len(self._rows), self._recent[-1]
        reserved = [row.prefix for row in self._rows.values() if row.state is _State.RESERVED]
        if 2 * (reserved.count(newest) + 1) > count or 4 * (len(reserved) + 1) > 3 * count:
            return None
        if (row := self._find_ready(newest)) is None:
            return None
        row.state = _State.RESERVED
        if self._refill is not None:
            self._schedule_refill()
        return row.number

    def take_over(self, number: int) -> asyncio.Task[int] | None:
        """The request of a reserved row that the other process has claimed for its slot; None if the pool is closed."""
        row = self._rows.get(number)
        if row is None or row.state not in (_State.RESERVED, _State.SPENT):
            return None
        prefix = row.prefix
        assert prefix is not None  # it was READY
        request, row.request = row.request, None
        if row.state is _State.SPENT:
            row.state, row.prefix = _State.EMPTY, None
        else:
            row.state = _State.CLAIMED
        self._note_use(prefix)
        return request

    def give_back(self, number: int) -> asyncio.Task[int] | None:
        """Ends a reservation; returns the request, as `take_over`, if the other process has claimed the row yet."""
        row = self._rows.get(number)
        if row is None or self._tables.control[number, Field.SUCCESSOR] or row.state is _State.SPENT:
            return self.take_over(number)
        if row.state is _State.RESERVED:
            row.state = _State.READY
            self._schedule_refill()
        return None

    def _find_ready(self, prefix: PromptPrefix) -> _Row | None:
        return next((row for row in self._rows.values() if row.state is _State.READY and row.prefix == prefix), None)

    def _note_use(self, prefix: PromptPrefix) -> None:
        self._recent.append(prefix)
        self._schedule_refill()

    def on_report(self, number: int) -> None:
        """Takes the scheduler's report of a row: its prefix was computed, or the row is free again."""
        if (row := self._rows.get(number)) is None:
            return
        if row.state is _State.COMPUTING:
            row.state = _State.READY
        elif row.state is _State.RESERVED:
            row.state = _State.SPENT
        elif row.state in (_State.CLAIMED, _State.ABORTING):
            row.state, row.prefix, row.request = _State.EMPTY, None, None
            self._schedule_refill()

    def close(self) -> None:
        """Aborts the requests that were not claimed; the pool is empty afterwards."""
        rows, self._rows = self._rows, {}
        for row in rows.values():
            if row.request is not None:
                row.request.cancel()
        if self._refill is not None:
            self._refill.cancel()

    def _schedule_refill(self) -> None:
        """Runs `_fill` after the delay that the rows allow now, unless it is to run before that anyway."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + (URGENT_REFILL_DELAY_S if self._is_refill_urgent() else REFILL_DELAY_S)
        if self._refill is not None:
            if self._refill.when() <= due_s:
                return
            self._refill.cancel()
        self._refill = loop.call_at(due_s, self._fill)

    def _is_refill_urgent(self) -> bool:
        """Whether at most half of the rows are spare, or none with the newest prefix can be claimed soon.

        Reserved rows are spare, because their utterances have not begun, but other utterances cannot claim them.
        """
        claimable = [row.prefix for row in self._rows.values() if row.state in (_State.COMPUTING, _State.READY)]
        reserved = sum(row.state is _State.RESERVED for row in self._rows.values())
        return 2 * (len(claimable) + reserved) <= len(self._rows) or self._recent[-1] not in claimable

    def _fill(self) -> None:
        self._refill = None
        wanted = self._wanted()
        kept = [row for row in self._rows.values() if row.state in (_State.COMPUTING, _State.READY)]
        have = Counter(row.prefix for row in kept if row.prefix is not None)
        missing = deque((wanted - have).elements())
        for row in self._rows.values():
            if row.state is _State.EMPTY and missing:
                self._compute(row, missing.popleft())
        for row in kept:
            prefix = row.prefix
            if missing and row.state is _State.READY and prefix is not None and have[prefix] > wanted[prefix]:
                have[prefix] -= 1
                missing.popleft()
                self._abort(row)

    def _wanted(self) -> Counter[PromptPrefix]:
        """Rows that each prefix should have."""
        recent, count = Counter(self._recent), len(self._rows)
        shares = Counter({prefix: count * times // len(self._recent) for prefix, times in recent.items()})
        for prefix, _ in recent.most_common(count - shares.total()):
            shares[prefix] += 1
        return shares

    def _compute(self, row: _Row, prefix: PromptPrefix) -> None:
        row.state, row.prefix = _State.COMPUTING, prefix
        prefix.write(self._tables, row.number)
        row.request = self._prefill(row.number, prefix.positions)

    def _abort(self, row: _Row) -> None:
        assert row.request is not None
        row.state = _State.ABORTING
        row.request.cancel()
