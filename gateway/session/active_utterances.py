"""The utterances of one socket by name: those under way, and the last that ended."""
# TODO-DOC The ends of an utterance: each is told once, counted once, and gives its slot back once.

from __future__ import annotations

import logging
from collections.abc import Callable

from voxgate.pipeline.errors import EngineError, VoxgateError

from ..errors import DuplicateUtterance, TooManyUtterances, UnknownUtterance
from .effects import CloseSpeech, EffectQueue
from .lifecycle import State
from .utterance import ServerUtterance

_TAILS = 8
"""Finished utterances remembered, because their last audio is still being heard."""


class ActiveUtterances:
    """`limit` utterances at most are under way at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active: dict[str, ServerUtterance] = {}
        self._tails: dict[str, ServerUtterance] = {}

    @property
    def active(self) -> tuple[ServerUtterance, ...]:
        """Under way, queued ones included."""
        return tuple(self._active.values())

    def check_free(self, name: str) -> None:
        """Raises DuplicateUtterance when an utterance of that name is under way."""
        if name in self._active:
            raise DuplicateUtterance(f"utterance {name!r} is still under way")

    def check_limit(self) -> None:
        """Raises TooManyUtterances."""
        if len(self._active) >= self._limit:
            raise TooManyUtterances(f"a socket has at most {self._limit} utterances under way")

    def add(self, utterance: ServerUtterance) -> None:
        self._tails.pop(utterance.name, None)
        self._active[utterance.name] = utterance

    def get(self, name: str) -> ServerUtterance | None:
        """Under way, or done and perhaps still being heard."""
        return self._active.get(name) or self._tails.get(name)

    def find(self, name: str) -> ServerUtterance:
        """As `get`. Raises UnknownUtterance."""
        if (found := self.get(name)) is None:
            raise UnknownUtterance(f"no utterance {name!r} is under way")
        return found

    def remove(self, utterance: ServerUtterance) -> None:
        self._active.pop(utterance.name, None)
        self._tails.pop(utterance.name, None)

    def finish(self, utterance: ServerUtterance) -> None:
        """It is done; an interrupt or a late ack may still come for it."""
        self.remove(utterance)
        self._tails[utterance.name] = utterance
        if len(self._tails) > _TAILS:
            del self._tails[next(iter(self._tails))]


log = logging.getLogger(__name__)


class Termination:
    """Of one session. `over(utterance, outcome)` is called for each, once, while it still knows everything."""

    def __init__(
        self,
        session: str,
        utterances: ActiveUtterances,
        effects: EffectQueue,
        over: Callable[[ServerUtterance, str], None],
    ) -> None:
        self._session = session
        self._utterances = utterances
        self._effects = effects
        self._over = over

    def fail_all(self, error: VoxgateError) -> None:
        """Give up what is under way."""
        for utterance in self._utterances.active:
            self.fail(utterance, error)

    def fail(self, utterance: ServerUtterance, error: VoxgateError) -> None:
        """Give one up and say why. Safe when it is over already."""
        if utterance.over:
            return
        partial = utterance.fail()
        self.leave(utterance, error.code)
        ours = isinstance(error, EngineError)
        extra = {"session": self._session, "utterance": utterance.id, "code": error.code}
        log.log(logging.WARNING if ours else logging.INFO, "utterance failed", extra=extra)
        self._effects.send_error(error, utterance.name, partial_audio=partial if ours else None)

    def leave(self, utterance: ServerUtterance, outcome: str) -> None:
        """It is over: nothing of it is sent any more but the one message that says so."""
        if not utterance.observed:  # one that is done can still be interrupted
            utterance.observed = True
            self._over(utterance, outcome)
        if utterance.state is State.DONE:
            self._utterances.finish(utterance)
        else:
            self._utterances.remove(utterance)
            self._effects.silence(utterance)
        self.close_speech(utterance)

    def close_speech(self, utterance: ServerUtterance) -> None:
        """Its speech is to be closed, and its slot given back."""
        if not utterance.speech_closed:
            utterance.speech_closed = True
            self._effects.add(CloseSpeech(utterance))
