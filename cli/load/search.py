"""The most streams that are carried: doubled until too many, then halved in between."""

from __future__ import annotations

_CONFIRMATIONS = 3


class Search:
    """Ask `next`, try that many, `tell` how it went; `best` is the result once `next` is None.

    Supposes that who carries n streams carries fewer. The result is tried again, because a single run can be lucky.
    """

    def __init__(self, first: int, limit: int) -> None:
        self._limit = limit
        self._carried = {0}
        self._too_many = limit + 1
        self._trying = min(first, limit)
        self._confirmations = _CONFIRMATIONS
        self._confirming = False

    @property
    def best(self) -> int:
        """The most that was carried, as far as is known."""
        return max(streams for streams in self._carried if streams < self._too_many)

    @property
    def next(self) -> int | None:
        """How many to try now; None when the search is over."""
        return self._trying or None

    def tell(self, carried: bool) -> None:
        """The number of `next` was carried, or was too many."""
        confirmed = carried and self._confirming
        self._confirming = False
        if carried:
            self._carried.add(self._trying)
        else:
            self._too_many = self._trying
        self._trying = 0 if confirmed else self._choose()

    def _choose(self) -> int:
        best = self.best
        if self._too_many > self._limit:
            if best < self._limit:
                return min(max(1, 2 * best), self._limit)
        elif best + max(1, best // 20) < self._too_many:
            return (best + self._too_many) // 2
        if best and self._confirmations:
            self._confirmations -= 1
            self._confirming = True
            return best
        return 0
