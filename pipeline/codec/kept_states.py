"""Which states a codec worker keeps: those behind the references of cloned voices, with which many streams begin."""

from __future__ import annotations

from collections import OrderedDict


class KeptStates:
    """Assigns keys to places; when all are taken, a new key gets the place of the least recently used one."""

    def __init__(self, places: int) -> None:
        self._places: OrderedDict[bytes, int] = OrderedDict()
        """By key, the least recently used first."""
        self._free = list(reversed(range(places)))

    def find(self, key: bytes) -> int | None:
        """Returns the place of a key, which counts as used; None when there is none."""
        if key in self._places:
            self._places.move_to_end(key)
        return self._places.get(key)

    def assign(self, key: bytes) -> int | None:
        """Returns the place of a new key, whose state has to be written there; None for a key that has a place."""
        if self.find(key) is not None:
            return None
        place = self._free.pop() if self._free else self._places.popitem(last=False)[1]
        self._places[key] = place
        return place
