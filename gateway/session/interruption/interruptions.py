"""Interrupts of one session: utterances stop or are held, go on or are let go, and the text that was heard is found."""

from __future__ import annotations

import logging
from collections import deque

from voxgate.pipeline.errors import BadMessage

from ...errors import TooManyUtterances
from ...messages.client import Continue, Interrupt
from ...observability.events import INTERRUPTED
from ..active_utterances import ActiveUtterances, Termination
from ..effects import EffectQueue
from ..pacer import TIMER_SLACK_S
from ..protocol import WireProtocol
from ..slots.utterance_slots import UtteranceSlots
from ..timers import UtteranceTimers
from ..utterance import ServerUtterance

log = logging.getLogger(__name__)


class Interruptions:
    """The interrupts and holds of one session. Synchronous; time is an argument.

    Finding the text that was heard may take several turns of the event loop, so `answer` does it in parts.
    """

    def __init__(
        self,
        session: str,
        protocol: WireProtocol,
        utterances: ActiveUtterances,
        effects: EffectQueue,
        termination: Termination,
        slots: UtteranceSlots,
        timers: UtteranceTimers,
        hold_max_ms: int,
    ) -> None:
        """`hold_max_ms`: the longest hold; 0 where none is offered."""
        self._session, self._reports_spoken_text = session, protocol.reports_spoken_text
        self._utterances, self._effects, self._termination = utterances, effects, termination
        self._slots, self._timers = slots, timers
        self._hold_max_ms = hold_max_ms
        self._unanswered: deque[ServerUtterance] = deque()
        """Interrupted utterances whose spoken text is not known yet."""

    def interrupt(self, message: Interrupt, now_s: float) -> None:
        """Stops or holds the utterances that the message names. Raises BadMessage, UnknownUtterance, UtteranceEnded."""
        self._check_hold(message.hold_ms)
        for utterance in self._interrupted_by(message, now_s):
            self._timers.busy_until_s = now_s
            unsent = self._effects.stop_audio(utterance)
            if message.hold_ms is None or not self._hold(utterance, message.played_ms, unsent, message.hold_ms, now_s):
                was_held = utterance.hold.held
                utterance.interrupt(message.played_ms, now_s, unsent)
                self._end(utterance, was_held=was_held)
            if self._reports_spoken_text:
                self._unanswered.append(utterance)
            else:
                self._effects.send(utterance.interrupted(with_text=False))
        self.answer()

    def end_hold(self, message: Continue, now_s: float) -> None:
        """Has a held utterance go on. Raises NotHeld, UnknownUtterance, UtteranceEnded."""
        utterance = self._utterances.find(message.utterance)
        continued = utterance.end_hold(now_s)
        self._slots.enqueue_again(utterance, message.id, now_s)
        if not utterance.ended:
            self._effects.send(continued)

    def let_go(self, utterance: ServerUtterance, now_s: float) -> bool:
        """Ends an utterance whose hold is over, without a message; returns whether it did."""
        if now_s + TIMER_SLACK_S < utterance.hold.until_s:
            return False
        utterance.interrupt(None, now_s)
        self._end(utterance, was_held=True)
        return True

    def answer(self) -> bool:
        """Does a part of the work of finding the spoken text, and sends the answers that are complete.

        Returns whether more is left for later turns of the event loop.
        """
        while self._unanswered:
            utterance = self._unanswered[0]
            try:
                if utterance.find_spoken_text():
                    return not self._effects.closed
                answer = utterance.interrupted(with_text=True)
            except Exception:
                ids = {"session": self._session, "utterance": utterance.id}
                log.exception("finding the spoken text failed", extra=ids)
                answer = utterance.interrupted(with_text=False)
            self._unanswered.popleft()
            self._effects.send(answer)
        return False

    def _interrupted_by(self, message: Interrupt, now_s: float) -> tuple[ServerUtterance, ...]:
        if message.utterance is not None:
            return (self._utterances.find(message.utterance),)
        if message.played_ms is not None:
            raise BadMessage("played_ms requires utterance", param="played_ms")
        playing = (u for u in self._utterances.recently_done if u.pacer.played_out_s(now_s) > now_s)
        return (*playing, *self._utterances.active)

    def _check_hold(self, hold_ms: int | None) -> None:
        most_ms = self._hold_max_ms
        if hold_ms is not None and hold_ms > most_ms:
            reason = f"hold_ms must be at most {most_ms}, got {hold_ms}" if most_ms else "hold_ms is not offered here"
            raise BadMessage(reason, param="hold_ms")

    def _hold(
        self, utterance: ServerUtterance, played_ms: int | None, unsent: int | None, hold_ms: int, now_s: float
    ) -> bool:
        """Keeps the utterance for `hold_ms`; returns False where a done one would be one too many."""
        if utterance.ended:
            try:
                self._utterances.check_limit(raw=utterance.raw)
            except TooManyUtterances:
                return False
        utterance.begin_hold(played_ms, unsent, hold_ms, now_s)
        self._utterances.add(utterance)
        return True

    def _end(self, utterance: ServerUtterance, *, was_held: bool) -> None:
        if was_held:
            self._utterances.let_go(utterance)
        self._termination.end(utterance, INTERRUPTED)
