"""Follows the playback of turns that a transport plays one after another."""

from __future__ import annotations

from collections import defaultdict
from math import inf


class TurnPlayback:
    """How much of each turn has been played, from the transport's reports: turns are played one after another."""

    def __init__(self) -> None:
        self._began_s = inf
        self._audio_s: dict[str, float] = {}
        """Audio received, by turn, in the order of playback."""
        self._played_s: dict[str, float] = {}
        """How much of it was played before the bot began to speak."""
        self._complete: set[str] = set()
        self._dry_s = inf
        """When all audio received has been played."""
        self.late_s: defaultdict[str, float] = defaultdict(float)
        """How long playback has paused within each turn, because audio was late."""

    def add(self, context_id: str, audio_s: float, now_s: float) -> None:
        pause_s = max(0.0, now_s - self._dry_s)
        self._dry_s += pause_s + audio_s
        self._began_s += pause_s
        if context_id in self._audio_s:
            self.late_s[context_id] += pause_s
        self._audio_s[context_id] = self._audio_s.get(context_id, 0.0) + audio_s

    def complete(self, context_id: str) -> None:
        """No more audio of this turn follows."""
        self._complete.add(context_id)

    def start(self, now_s: float) -> None:
        if self._began_s == inf:
            self._began_s = now_s
            self._dry_s = now_s + sum(self._audio_s.values()) - sum(self._played_s.values())

    def stop(self) -> None:
        """All audio that was received has been played; that of turns which are not complete goes on later."""
        self._began_s = inf
        for context_id in tuple(self._complete):
            self.forget(context_id)
        self._played_s = dict(self._audio_s)

    def forget(self, context_id: str) -> None:
        """This turn is not played any further."""
        self._audio_s.pop(context_id, None)
        self._played_s.pop(context_id, None)
        self.late_s.pop(context_id, None)
        self._complete.discard(context_id)

    def played_s(self, context_id: str, now_s: float) -> float:
        """Seconds of the turn's audio that were played, at most those received."""
        left_s = now_s - self._began_s
        for each, audio_s in self._audio_s.items():
            before_s = self._played_s.get(each, 0.0)
            if each == context_id:
                return min(before_s + max(left_s, 0.0), audio_s)
            left_s -= audio_s - before_s
        return 0.0
