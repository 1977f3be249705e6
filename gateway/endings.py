"""The ends of an utterance: each is told once, counted once, and gives its slot back once."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..pipeline.errors import EngineError, VoxgateError
from .effects import Retire
from .lifecycle import State
from .outgoing import Outgoing
from .roster import Roster
from .utterance import Utterance

log = logging.getLogger(__name__)


class Endings:
    """Of one session. `over(utterance, outcome)` is called for each, once, while it still knows everything."""

    def __init__(
        self, session: str, roster: Roster, outgoing: Outgoing, over: Callable[[Utterance, str], None]
    ) -> None:
        self._session = session
        self._roster = roster
        self._outgoing = outgoing
        self._over = over

    def fail_all(self, error: VoxgateError) -> None:
        """Give up what is under way."""
        for utterance in self._roster.active:
            self.fail(utterance, error)

    def fail(self, utterance: Utterance, error: VoxgateError) -> None:
        """Give one up and say why. Safe when it is over already."""
        if utterance.over:
            return
        partial = utterance.fail()
        self.leave(utterance, error.code)
        ours = isinstance(error, EngineError)
        extra = {"session": self._session, "utterance": utterance.id, "code": error.code}
        log.log(logging.WARNING if ours else logging.INFO, "utterance failed", extra=extra)
        self._outgoing.tell(error, utterance.name, partial_audio=partial if ours else None)

    def leave(self, utterance: Utterance, outcome: str) -> None:
        """It is over: nothing of it is sent any more but the one message that says so."""
        if not utterance.observed:  # one that is done can still be interrupted
            utterance.observed = True
            self._over(utterance, outcome)
        if utterance.state is State.DONE:
            self._roster.finish(utterance)
        else:
            self._roster.remove(utterance)
            self._outgoing.silence(utterance)
        self.retire(utterance)

    def retire(self, utterance: Utterance) -> None:
        """Its speech is to be closed, and its slot given back."""
        if not utterance.retired:
            utterance.retired = True
            self._outgoing.add(Retire(utterance))
