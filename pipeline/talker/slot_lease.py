"""Slots leased to another process, which runs its generations in them one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

from .slot_owners import SlotEngine

MAX_PREFILL_S = 10.0
"""Seconds within which a working engine has computed any prompt."""

CODEC_GRACE_S = 2.0
"""Seconds after which a process's last codec job is done: one that died may have left a job for its slot."""


class LendingEngine(SlotEngine, Protocol):
    """The engine as its leases see it."""

    def take_over(self, row: int) -> asyncio.Task[int] | None:
        """As `PrefilledPromptPool.take_over`."""

    def give_back(self, row: int) -> asyncio.Task[int] | None:
        """As `PrefilledPromptPool.give_back`."""

    def written_epoch(self, slot: int) -> int:
        """The epoch in the tables of a slot."""


@dataclass(slots=True)
class _Submission:
    epoch: int
    submit: Callable[[], None]
    aborted: bool = False


class TalkerSlotLease:
    """Owns a talker slot for another process, in the speech process.

    It runs and aborts requests; the slot is free again once the engine has confirmed that no step touches it. The other
    process writes the slot's tables and receives its frames itself.
    """

    def __init__(self, slot: int, engine: LendingEngine, prompt_row: int | None = None) -> None:
        self.slot = slot
        self.prompt_row = prompt_row
        """The row of a prefilled prompt that is reserved for the first generation, until then."""
        self.epoch = 0
        self._engine = engine
        self._request: asyncio.Task[int] | None = None
        """Until the engine has confirmed its end."""
        self._prompt_len = 0
        self._began_s = 0.0
        self._aborting = self._released = False
        self._following: _Submission | None = None
        """What was submitted behind a generation whose abort is not confirmed here yet."""

    @property
    def pending_prompt_positions(self) -> int:
        """Positions of the prompt that the engine may still have to compute."""
        if self._request is None or asyncio.get_running_loop().time() - self._began_s > MAX_PREFILL_S:
            return 0
        return self._prompt_len

    def submit(
        self, epoch: int, prompt_len: int, on_end: Callable[[int | None], None], *, claimed: bool = False
    ) -> None:
        """Runs a generation; `on_end` gets the number of its steps, or None when the engine was lost.

        `claimed`: the process has claimed the reserved row for it. Refused with None while another one runs, and after
        `release`.
        """
        if self._released or (self._request is not None and (not self._aborting or self._following is not None)):
            on_end(None)
            return
        if self._request is not None:
            # The engine's confirmation has reached the other process, and comes here by another socket.
            self._following = _Submission(epoch, partial(self.submit, epoch, prompt_len, on_end, claimed=claimed))
            return
        self.epoch, self._prompt_len = epoch, prompt_len
        self._began_s = asyncio.get_running_loop().time()
        request = self._end_reservation(claimed=claimed) or self._engine.run(self.slot, epoch, prompt_len)
        self._request = request
        request.add_done_callback(lambda request: self._ended(request, on_end))

    def _end_reservation(self, *, claimed: bool = False) -> asyncio.Task[int] | None:
        row, self.prompt_row = self.prompt_row, None
        if row is None:
            return None
        return self._engine.take_over(row) if claimed else self._engine.give_back(row)

    def abort(self, epoch: int) -> None:
        """Aborts that generation, if it is the present one; the engine confirms it to the other process too."""
        if self._following is not None and self._following.epoch == epoch:
            self._following.aborted = True
        if self.epoch != epoch:
            return
        if self._request is not None and not self._request.done():
            self._request.cancel()
            self._aborting = True
        else:
            # It ended while the message was on its way; the other process waits for the confirmation.
            self._engine.request_release(self)

    def release(self) -> None:
        """Ends the lease; the slot is free when the engine has confirmed it."""
        self._released = True
        if (claimed := self._end_reservation()) is not None:
            # By a process that died before it could submit the generation.
            self._request, self.epoch = claimed, self._engine.written_epoch(self.slot)
            claimed.add_done_callback(lambda request: self._ended(request, lambda _: None))
        if self._request is None:
            self._engine.free(self)
        else:
            self._request.cancel()

    def _ended(self, request: asyncio.Task[int], on_end: Callable[[int | None], None]) -> None:
        if request.cancelled() or (self._aborting and request.exception() is None):
            # A step in flight may still read the slot's tables.
            self._engine.request_release(self)
            return
        self._request = None
        on_end(None if request.exception() is not None else request.result())
        if self._released:
            self._engine.free(self)

    def on_released(self) -> None:
        """The engine confirms the end of the present generation."""
        self._request, self._aborting = None, False
        following, self._following = self._following, None
        if self._released:
            self._engine.free(self)
        elif following is not None:
            following.submit()
            if following.aborted:
                self.abort(following.epoch)

    def on_record(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """Not called: frames go to the other process."""

    def on_audio(self, pcm: Pcm) -> None:
        """Not called: audio goes to the other process."""

    def fail(self, error: Exception) -> None:
        """Does nothing: the speech process reports the loss to the other process."""


class SlotLease:
    """The talker slot and the codec slot of one utterance; `return_codec` takes the latter back."""

    def __init__(self, talker: TalkerSlotLease, codec: int, return_codec: Callable[[], None]) -> None:
        self.talker, self.codec = talker, codec
        self._return_codec: Callable[[], None] | None = return_codec

    def release(self) -> None:
        """Ends the lease: the utterance is over, and its process no longer touches the slots. Safe to call twice."""
        if (return_codec := self._end()) is not None:
            return_codec()

    def revoke(self) -> None:
        """Ends the lease of a process that died. Safe to call twice."""
        if (return_codec := self._end()) is not None:
            asyncio.get_running_loop().call_later(CODEC_GRACE_S, return_codec)

    def _end(self) -> Callable[[], None] | None:
        return_codec, self._return_codec = self._return_codec, None
        if return_codec is not None:
            self.talker.release()
        return return_codec
