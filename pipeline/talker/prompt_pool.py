"""Prompts that are read before anybody needs them.

What an utterance then waits for is one step, the one that makes its first frame, and not a request that vLLM has never
seen. A prompt is read into a row of the tables behind the slots, and the request that did so rests there; a generation
with the same prompt takes the request over (`Field.SUCCESSOR`) and goes on from it in its own slot.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np

from ..ipc.slot_tables import SPEAKER, Field, SlotTables

REFILL_DELAY_S = 0.05
"""What was taken is made anew so much later, several at a time: a step with prompts holds everybody up a little."""
MAX_PREFIX_POSITIONS = 64
"""Longer prompts are read when they are needed: few utterances have the same."""


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """What a talker reads before the text: rows of the prompt's table up to where speech begins, as bytes."""

    prefix: bytes
    begin: int
    lead: int
    speaker: bytes = b""

    @classmethod
    def of(cls, tables: SlotTables, slot: int) -> PromptPrefix | None:
        """Of a slot whose prompt is written; None where it has to know of the text, and where it is long."""
        begin, lead = int(tables.control[slot, Field.PREFIX_LEN]), int(tables.control[slot, Field.TEXT_LEAD])
        if lead > 0 or not 0 < begin <= MAX_PREFIX_POSITIONS:
            return None
        prefix = tables.prefix[slot, :begin]
        speaker = tables.speaker[slot].tobytes() if (prefix[:, 1] == SPEAKER).any() else b""
        return cls(prefix.tobytes(), begin, lead, speaker)

    def write(self, tables: SlotTables, row: int) -> None:
        """Into a row that nobody reads."""
        control = tables.control[row]
        control[:] = 0
        control[Field.PREFIX_LEN], control[Field.TEXT_LEAD] = self.begin, self.lead
        prefix = np.frombuffer(self.prefix, np.int32).reshape(self.begin, -1)
        tables.prefix[row, : self.begin] = prefix
        if self.speaker:
            tables.speaker[row] = np.frombuffer(self.speaker, np.float32)


class _State(Enum):
    EMPTY = auto()
    READ = auto()
    """It is being read."""
    READY = auto()
    TAKEN = auto()
    """By a generation that has not made its first frame yet."""
    LEFT = auto()
    """Given up for another prompt; the engine has not confirmed it yet."""


@dataclass(eq=False, slots=True)
class _Row:
    slot: int
    state: _State = _State.EMPTY
    stem: PromptPrefix | None = None
    request: asyncio.Task[int] | None = None


class PrefillEngine(Protocol):
    """What rows ask of the engine."""

    def read(self, row: int, positions: int) -> asyncio.Task[int]:
        """Run a request for so many positions of the row's prompt, and whatever follows. Cancelling aborts it."""


class PrefilledPromptPool:
    """Rows `first` to `first + count`: for prompts as they came lately, each as many as its share of those.

    Belongs to the event loop.
    """

    def __init__(self, engine: PrefillEngine, tables: SlotTables, first: int, count: int) -> None:
        self._engine, self._tables = engine, tables
        self.rows = {slot: _Row(slot) for slot in range(first, first + count)}
        self._lately: deque[PromptPrefix] = deque(maxlen=max(1, count))
        self._refill: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> int:
        """Rows whose prompt was read, for anybody to go on from."""
        return sum(row.state is _State.READY for row in self.rows.values())

    def take(self, slot: int) -> asyncio.Task[int] | None:
        """The request that has read this slot's prompt, if there is one; from now on it makes the slot's frames.

        Before, everything that the first step reads of the slot must be written.
        """
        if not self.rows or (stem := PromptPrefix.of(self._tables, slot)) is None:
            return None
        self._lately.append(stem)
        self._refill_soon()
        for row in self.rows.values():
            if row.state is _State.READY and row.stem == stem:
                row.state = _State.TAKEN
                request, row.request = row.request, None
                self._tables.control[row.slot, Field.SUCCESSOR] = slot + 1
                return request
        return None

    def heard(self, slot: int) -> None:
        """The engine's news of a row: its prompt was read, or nobody needs it any more."""
        if (row := self.rows.get(slot)) is None:
            return
        if row.state is _State.READ:
            row.state = _State.READY
        elif row.state in (_State.TAKEN, _State.LEFT):
            row.state, row.stem, row.request = _State.EMPTY, None, None
            self._refill_soon()

    def close(self) -> None:
        """No more are read, and what was read for nobody is aborted."""
        rows, self.rows = self.rows, {}
        for row in rows.values():
            if row.request is not None:
                row.request.cancel()
        if self._refill is not None:
            self._refill.cancel()

    def _refill_soon(self) -> None:
        if self._refill is None:
            self._refill = asyncio.get_running_loop().call_later(REFILL_DELAY_S, self._fill)

    def _fill(self) -> None:
        self._refill = None
        wanted = self._wanted()
        kept = [row for row in self.rows.values() if row.state in (_State.READ, _State.READY)]
        have = Counter(row.stem for row in kept if row.stem is not None)
        missing = deque((wanted - have).elements())
        for row in self.rows.values():
            if row.state is _State.EMPTY and missing:
                self._read(row, missing.popleft())
        for row in kept:
            if missing and row.state is _State.READY and row.stem is not None and have[row.stem] > wanted[row.stem]:
                have[row.stem] -= 1
                missing.popleft()
                self._leave(row)

    def _wanted(self) -> Counter[PromptPrefix]:
        """How many of each there should be, all rows together."""
        lately, count = Counter(self._lately), len(self.rows)
        shares = Counter({stem: count * times // len(self._lately) for stem, times in lately.items()})
        for stem, _ in lately.most_common(count - shares.total()):
            shares[stem] += 1
        return shares

    def _read(self, row: _Row, stem: PromptPrefix) -> None:
        row.state, row.stem = _State.READ, stem
        stem.write(self._tables, row.slot)
        row.request = self._engine.read(row.slot, stem.begin)

    def _leave(self, row: _Row) -> None:
        assert row.request is not None
        row.state = _State.LEFT
        row.request.cancel()
