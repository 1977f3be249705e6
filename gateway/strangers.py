"""Sockets that have not said yet whose they are: few at a time, and a flood of them crowds out itself before others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

MOST = 64


class Strangers:
    """At most `most` wait. One more takes the place of the longest waiting of the address that most of them have.

    Who means to give a key gives it at once: who waits has come for something else, or for nothing.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting: dict[object, tuple[str, Callable[[], None]]] = {}
        """In the order of their coming: address, and how to send them away."""

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def waiting(self, address: str, send_away: Callable[[], None]) -> Iterator[None]:
        """While one of that address waits; `send_away` is called when it has to make room."""
        if len(self._waiting) >= self._most:
            self._make_room()
        visit = object()
        self._waiting[visit] = (address, send_away)
        try:
            yield
        finally:
            self._waiting.pop(visit, None)

    def _make_room(self) -> None:
        addresses = [address for address, _ in self._waiting.values()]
        crowd = max(addresses, key=addresses.count)
        visit = next(visit for visit, (address, _) in self._waiting.items() if address == crowd)
        _, send_away = self._waiting.pop(visit)
        send_away()
