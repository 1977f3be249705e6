"""How long an utterance may wait for a slot, wait for text, and last in all."""

from __future__ import annotations

import math

from ..errors import Limit, UtteranceTimeout
from ..messages import server
from ..settings import Settings
from .active_utterances import Termination
from .admission import Admission
from .effects import EffectQueue
from .pacer import TIMER_SLACK_S
from .utterance import ServerUtterance

DURATION_FACTOR = 3
"""Longest time of an utterance, in durations of its audio, besides `utterance_timeout_s`."""


class UtteranceDeadlines:
    """The deadlines of one session's utterances. Synchronous; time is an argument."""

    def __init__(
        self, settings: Settings, admission: Admission, effects: EffectQueue, termination: Termination
    ) -> None:
        self._text_idle_timeout_s = settings.text_idle_timeout_s
        self._utterance_timeout_s = settings.utterance_timeout_s
        self._admission, self._effects, self._termination = admission, effects, termination

    def end_queued(self, utterance: ServerUtterance, now_s: float) -> bool:
        """Ends an utterance that has waited for a slot for too long; returns whether it did."""
        if not utterance.queued or now_s + TIMER_SLACK_S < _queue_end_s(utterance):
            return False
        error = self._admission.capacity_error("no talker slot became free", Limit.QUEUE_WAIT)
        self._termination.fail(utterance, error)
        return True

    def end_overlong(self, utterance: ServerUtterance, now_s: float) -> bool:
        """Ends an utterance that lasts for too long, however its client delays it; returns whether it did."""
        if now_s + TIMER_SLACK_S < self._end_s(utterance):
            return False
        limit = f"{self._utterance_timeout_s:g} s and three times the duration of its audio"
        self._termination.fail(utterance, UtteranceTimeout(f"an utterance may last at most {limit}"))
        return True

    def ends_text(self, utterance: ServerUtterance, now_s: float) -> bool:
        """Returns whether the client has stopped sending text, which is then to be ended; warns the client of it."""
        if now_s + TIMER_SLACK_S < self._text_end_s(utterance):
            return False
        message = f"no text for {self._text_idle_timeout_s:g} s: the utterance is finished with the text received"
        self._effects.send(
            server.WarningMessage(code=server.TEXT_WAITED_OUT, message=message, utterance=utterance.name)
        )
        return True

    def next_wake_s(self, utterance: ServerUtterance) -> float:
        """When the first of these is over; infinity for never."""
        until_s = min(self._text_end_s(utterance), self._end_s(utterance))
        return min(until_s, _queue_end_s(utterance)) if utterance.queued else until_s

    def _text_end_s(self, utterance: ServerUtterance) -> float:
        """When it has waited too long for text without sending audio; infinity once its text is complete."""
        if not utterance.open_text or utterance.hold.held:
            return math.inf
        return utterance.active_s + self._text_idle_timeout_s

    def _end_s(self, utterance: ServerUtterance) -> float:
        """When it has to be over, after a time that grows with the audio sent so far."""
        audio_s = utterance.pacer.sent_samples / utterance.audio_format.sample_rate_hz
        return utterance.figures.started_s + self._utterance_timeout_s + DURATION_FACTOR * audio_s


def _queue_end_s(utterance: ServerUtterance) -> float:
    """When an utterance that waits for a slot has waited too long."""
    return utterance.ticket.deadline_s if utterance.ticket is not None else math.inf
