"""How a `start` becomes an utterance of its session, and what refuses it before."""

from __future__ import annotations

from voxgate.pipeline.text.lexicon.lexicon import Lexicon

from ..access.caller import Caller
from ..access.rate_policy import RatePolicy
from ..messages.client import Restore, Start
from ..messages.server import AcceptedMessage
from .active_utterances import ActiveUtterances
from .effects import EffectQueue
from .ending import Ending
from .protocol import WireProtocol
from .timers import UtteranceTimers
from .utterance_factory import UtteranceFactory


class UtteranceStarts:
    """Begins the utterances of one session, and numbers them. Synchronous; time is an argument."""

    def __init__(
        self,
        session: str,
        caller: Caller,
        factory: UtteranceFactory,
        protocol: WireProtocol,
        rate_policy: RatePolicy,
        utterances: ActiveUtterances,
        effects: EffectQueue,
        timers: UtteranceTimers,
    ) -> None:
        self.ending: Ending | None = None
        """Why no utterance begins any more; None while the session accepts them."""
        self._session, self._caller, self._factory = session, caller, factory
        self._protocol, self._rate_policy = protocol, rate_policy
        self._utterances, self._effects, self._timers = utterances, effects, timers
        self._next_number = 1

    def check(self, message: Start, now_s: float) -> tuple[Lexicon, ...] | None:
        """Returns the dictionaries for `begin`; None where they are to be loaded first.

        Raises DuplicateUtterance, RateLimited, the error of `ending`, TooManyUtterances, and what the factory raises.
        """
        # First the errors that refuse the message only: others would end the active utterance of the same name.
        self._utterances.check_free(message.utterance)
        self._rate_policy.take("starts", now_s)
        self._check_ending()
        self._utterances.check_limit(raw=message.framing == "raw")
        return self._factory.dictionaries(message)

    def begin(self, message: Start, dictionaries: tuple[Lexicon, ...], now_s: float) -> None:
        """Begins the utterance of a message that was checked.

        Raises the error of `ending`, what the factory raises, RateLimited for the characters of a restored utterance.
        """
        self._check_ending()
        utterance = self._factory.utterance(
            message,
            self._next_number,
            dictionaries,
            clients_buffer=self._protocol.clients_buffer,
            holds_utterances=self._protocol.holds_utterances,
        )
        if isinstance(message, Restore):
            self._caller.charge_text(utterance.trail.prepaid, now_s)
        if self._protocol.plays_in_order:
            utterance.pacer.hold_until(self._timers.busy_until_s)
        utterance.open(f"{self._session}.{utterance.number}", now_s)
        self._next_number += 1
        self._utterances.add(utterance)
        self._effects.send(AcceptedMessage(utterance=utterance.name))

    def _check_ending(self) -> None:
        if self.ending is not None:
            raise self.ending.error()
