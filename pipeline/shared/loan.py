"""A place in the engine lent to another process, as the speech process keeps account of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..talker.seat import Seat

LINGER_S = 2.0
"""A process that died may have left the codec a job for its slot; by then it has been done."""


class Loan:
    """For one utterance: `seat` is the talker's slot and `codec` the codec's; `returned` takes the latter back."""

    def __init__(self, seat: Seat, codec: int, returned: Callable[[], None]) -> None:
        self.seat, self.codec = seat, codec
        self._returned: Callable[[], None] | None = returned

    def give_back(self) -> None:
        """The utterance is over, and its process touches the slots no more. Safe to call twice."""
        returned, self._returned = self._returned, None
        if returned is not None:
            self.seat.leave()
            returned()

    def call_in(self) -> None:
        """The process is no more."""
        returned, self._returned = self._returned, None
        if returned is not None:
            self.seat.leave()
            asyncio.get_running_loop().call_later(LINGER_S, returned)
