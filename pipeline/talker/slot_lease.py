"""A talker slot lent to another process, which runs its generations in it, one after another."""
# TODO-DOC A place in the engine lent to another process, as the speech process keeps account of it.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

MAX_PREFILL_S = 10.0
"""By then an engine that lives has read a prompt."""


class LeaseEngine(Protocol):
    """What a seat asks of the engine."""

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]: ...
    def ask_release(self, tenant: TalkerSlotLease) -> None: ...
    def free(self, tenant: TalkerSlotLease) -> None: ...


class TalkerSlotLease:
    """The engine's side of it: requests are made and ended here, and the slot is free again on the engine's word only.

    The other process writes the slot's tables and gets its frames itself.
    """

    def __init__(self, slot: int, engine: LeaseEngine) -> None:
        self.slot = slot
        self.epoch = 0
        self._engine = engine
        self._request: asyncio.Task[int] | None = None
        """Until the engine confirmed its end."""
        self._prompt_len = 0
        self._began_s = 0.0
        self._left = False

    @property
    def pending_prompt_positions(self) -> int:
        if self._request is None or asyncio.get_running_loop().time() - self._began_s > MAX_PREFILL_S:
            return 0
        return self._prompt_len

    def submit(self, epoch: int, prompt_len: int, over: Callable[[int | None], None]) -> None:
        """Run a generation; `over` gets the number of its steps at its end, or None when the engine was lost.

        Ignored while another runs, and once the seat was left.
        """
        if self._request is not None or self._left:
            return over(None)
        self.epoch, self._prompt_len = epoch, prompt_len
        self._began_s = asyncio.get_running_loop().time()
        self._request = self._engine.run(self.slot, epoch, prompt_len)
        self._request.add_done_callback(lambda request: self._ended(request, over))
        return None

    def stop(self, epoch: int) -> None:
        """Abort that generation; the engine's word that it is over goes to the other process too."""
        if self.epoch != epoch:
            return
        if self._request is not None:
            self._request.cancel()
        else:
            # It came to its end while this was on its way.
            self._engine.ask_release(self)

    def leave(self) -> None:
        """The other process has done with it, or is no more: the slot is free when the engine has confirmed it."""
        self._left = True
        if self._request is None:
            self._engine.free(self)
        else:
            self._request.cancel()

    def _ended(self, request: asyncio.Task[int], over: Callable[[int | None], None]) -> None:
        if request.cancelled():
            # The slot's tables may still be read: that they are not, the engine has to say.
            self._engine.ask_release(self)
            return
        self._request = None
        over(None if request.exception() is not None else request.result())
        if self._left:
            self._engine.free(self)

    # What the engine reports

    def released(self) -> None:
        self._request = None
        if self._left:
            self._engine.free(self)

    def take(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """Frames go to the other process; none come here."""

    def on_audio(self, pcm: Pcm) -> None:
        """Nor does their sound."""

    def fail(self, error: Exception) -> None:
        """Who lends it tells the other process."""


CODEC_GRACE_S = 2.0
"""A process that died may have left the codec a job for its slot; by then it has been done."""


class SlotLease:
    """For one utterance: `talker` is the talker's slot and `codec` the codec's; `returned` takes the latter back."""

    def __init__(self, seat: TalkerSlotLease, codec: int, returned: Callable[[], None]) -> None:
        self.talker, self.codec = seat, codec
        self._returned: Callable[[], None] | None = returned

    def release(self) -> None:
        """The utterance is over, and its process touches the slots no more. Safe to call twice."""
        returned, self._returned = self._returned, None
        if returned is not None:
            self.talker.leave()
            returned()

    def revoke(self) -> None:
        """The process is no more."""
        returned, self._returned = self._returned, None
        if returned is not None:
            self.talker.leave()
            asyncio.get_running_loop().call_later(CODEC_GRACE_S, returned)
