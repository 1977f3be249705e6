"""The utterances of one socket by name: those under way, and the last that ended."""

from __future__ import annotations

from .errors import DuplicateUtterance, TooManyUtterances, UnknownUtterance
from .utterance import Utterance

_TAILS = 8
"""Finished utterances remembered, because their last audio is still being heard."""


class Roster:
    """`limit` utterances at most are under way at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active: dict[str, Utterance] = {}
        self._tails: dict[str, Utterance] = {}

    @property
    def active(self) -> tuple[Utterance, ...]:
        """Under way, queued ones included."""
        return tuple(self._active.values())

    def check_free(self, name: str) -> None:
        """Raises DuplicateUtterance when an utterance of that name is under way."""
        if name in self._active:
            raise DuplicateUtterance(f"utterance {name!r} is still under way")

    def check_room(self) -> None:
        """Raises TooManyUtterances."""
        if len(self._active) >= self._limit:
            raise TooManyUtterances(f"a socket has at most {self._limit} utterances under way")

    def add(self, utterance: Utterance) -> None:
        self._tails.pop(utterance.name, None)
        self._active[utterance.name] = utterance

    def get(self, name: str) -> Utterance | None:
        """Under way, or done and perhaps still being heard."""
        return self._active.get(name) or self._tails.get(name)

    def find(self, name: str) -> Utterance:
        """As `get`. Raises UnknownUtterance."""
        if (found := self.get(name)) is None:
            raise UnknownUtterance(f"no utterance {name!r} is under way")
        return found

    def remove(self, utterance: Utterance) -> None:
        self._active.pop(utterance.name, None)
        self._tails.pop(utterance.name, None)

    def finish(self, utterance: Utterance) -> None:
        """It is done; an interrupt or a late ack may still come for it."""
        self.remove(utterance)
        self._tails[utterance.name] = utterance
        if len(self._tails) > _TAILS:
            del self._tails[next(iter(self._tails))]
