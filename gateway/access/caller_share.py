"""How many places one caller may hold while other callers want some too."""

from __future__ import annotations

import math
from collections import Counter

PRESENCE_S = 60.0
"""Seconds after a refusal in which the refused caller counts as present: it is expected to try again."""


class CallerShare:
    """Counts the places of each caller, and limits a caller to `share` of all places while another one is present.

    A caller is present while it holds or waits for a place, and for `PRESENCE_S` after a refusal. A caller that is
    alone may hold every place; what it holds above its share when another one comes is not taken away. Synchronous;
    time is an argument and does not go back. Memory grows with the callers that hold places only.
    """

    def __init__(self, share: float) -> None:
        """`share`: above 0, at most 1; 1 gives every caller every place."""
        self._share = share
        self._held: Counter[str] = Counter()
        self._refused: dict[str, float] = {}
        """Times of the last refusals of the two callers refused last: of these, one is another caller."""

    def held(self, caller: str) -> int:
        """Returns the places that `caller` holds or waits for."""
        return self._held[caller]

    def acquire(self, caller: str) -> None:
        """Counts one more place."""
        self._held[caller] += 1

    def release(self, caller: str) -> None:
        """Counts one place less."""
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]

    def refuse(self, caller: str, now_s: float) -> None:
        """Notes that `caller` wanted a place and got none."""
        self._refused.pop(caller, None)
        self._refused[caller] = now_s
        if len(self._refused) > 2:
            del self._refused[next(iter(self._refused))]

    def limit(self, caller: str, places: int, now_s: float, *, others: bool = False) -> int:
        """Returns how many of `places` the caller may hold: at least one if there is one.

        `others`: whether other callers are known to be present elsewhere.
        """
        return math.ceil(self._share * places) if others or self._others_present(caller, now_s) else places

    def _others_present(self, caller: str, now_s: float) -> bool:
        if len(self._held) > (caller in self._held):
            return True
        return any(name != caller and now_s - at_s < PRESENCE_S for name, at_s in self._refused.items())
