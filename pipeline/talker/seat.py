"""A talker slot lent to another process, which runs its generations in it, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..speech import Pcm

READ_S = 10.0
"""By then an engine that lives has read a prompt."""


class Engine(Protocol):
    """What a seat asks of the engine."""

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]: ...
    def ask_release(self, tenant: Seat) -> None: ...
    def free(self, tenant: Seat) -> None: ...


class Seat:
    """The engine's side of it: requests are made and ended here, and the slot is free again on the engine's word only.

    The other process writes the slot's tables and gets its frames itself.
    """

    def __init__(self, slot: int, engine: Engine) -> None:
        self.slot = slot
        self.epoch = 0
        self._engine = engine
        self._request: asyncio.Task[int] | None = None
        """Until the engine confirmed its end."""
        self._prompt_len = 0
        self._began_s = 0.0
        self._left = False

    @property
    def unread_positions(self) -> int:
        if self._request is None or asyncio.get_running_loop().time() - self._began_s > READ_S:
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

    def hear(self, pcm: Pcm) -> None:
        """Nor does their sound."""

    def fail(self, error: Exception) -> None:
        """Who lends it tells the other process."""
