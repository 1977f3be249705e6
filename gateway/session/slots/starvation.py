"""Which utterance gives its slot up: one whose client sends too little text, while other utterances wait for a slot."""

from __future__ import annotations

import math

from ..admission import Admission
from ..lifecycle import State
from ..pacer import TIMER_SLACK_S
from ..utterance import ServerUtterance

STARVED_S = 1.0
"""Seconds without text and audio after which an utterance gives its slot up, at most: more than a language model's
usual pause, because the talker has to repeat its context when it goes on."""
MAX_STARVED_S = 10.0
"""As STARVED_S, for all the time without audio since it got its slot: a trickle of text would otherwise hold it."""
LOOK_INTERVAL_S = 0.25
"""Seconds between looks at whether others wait, which is no event of the session."""


class Starvation:
    """Judges the utterances of one session. Synchronous; time is an argument.

    An utterance that waits for a slot gets that of a starving one before its own time in the queue ends.
    """

    def __init__(self, admission: Admission, queue_wait_s: float) -> None:
        """`queue_wait_s`: longest time in the queue."""
        self._admission = admission
        silence_s = min(STARVED_S, queue_wait_s / 2)
        self._silence_s, self._total_s = silence_s, min(MAX_STARVED_S, queue_wait_s - silence_s)

    def gives_way(self, utterance: ServerUtterance, now_s: float) -> bool:
        """Returns whether the utterance has to give its slot up."""
        return self._admission.queued > 0 and now_s + TIMER_SLACK_S >= self._starved_from_s(utterance)

    def next_look_s(self, utterance: ServerUtterance, now_s: float) -> float:
        """When to judge the utterance again; infinity while it does not wait for text."""
        starved_s = self._starved_from_s(utterance)
        if starved_s > now_s + TIMER_SLACK_S:
            return starved_s
        return now_s if self._admission.queued else now_s + LOOK_INTERVAL_S

    def _starved_from_s(self, utterance: ServerUtterance) -> float:
        """When the utterance has held its slot for nothing for too long; infinity while it does not wait for text.

        That is `_silence_s` after the last text and the last audio sent, or `_total_s` in all since it got the slot.
        One that is held speaks for nothing as one that waits for text does, from the moment at which it was held.
        """
        granted_s = None if utterance.ticket is None else utterance.ticket.granted_s
        if granted_s is None or utterance.speech_closed or not utterance.has_slot:
            return math.inf
        if (speech := utterance.listening_speech) is None:
            return math.inf
        if utterance.hold.held:
            since_s = utterance.hold.slot_judged_s
        elif utterance.state is State.SPEAKING and utterance.outbox.next_samples is None and speech.waiting_for_text:
            since_s = utterance.active_s
        else:
            return math.inf
        return min(max(since_s, granted_s) + self._silence_s, granted_s + utterance.sent_in_slot_s + self._total_s)
