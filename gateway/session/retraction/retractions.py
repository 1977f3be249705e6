"""Takes text back that was not spoken yet: when the place of the cut is known, the speech begins again up to there."""

from __future__ import annotations

import logging
import math

from voxgate.pipeline.errors import CheckpointRefused, GenerationFailed
from voxgate.pipeline.interface import SpeechCut

from ..active_utterances import Termination
from ..effects import EffectQueue, RewindSpeech
from ..pacer import TIMER_SLACK_S
from ..slots.utterance_slots import UtteranceSlots
from ..utterance import ServerUtterance
from .retraction import PendingRetraction

log = logging.getLogger(__name__)

STUCK_S = 2.0
"""Seconds without progress after which a speech that waits for text is not expected to make again what was sent."""
LOOK_INTERVAL_S = 0.25
"""Seconds between looks at whether it has advanced, which is no event of the session."""


class Retractions:
    """The retractions of one session. Synchronous; time is an argument."""

    def __init__(self, effects: EffectQueue, slots: UtteranceSlots, termination: Termination) -> None:
        self._effects, self._slots, self._termination = effects, slots, termination

    def begin(self, utterance: ServerUtterance, characters: int, message_id: str | None, now_s: float) -> None:
        """Takes back all text but `characters`, in the client's units; the answer may follow later.

        Raises IllegalEvent, UtteranceEnded, RateLimited.
        """
        utterance.retract(characters, message_id, now_s)
        self._slots.enqueue_again(utterance, message_id, now_s)
        self.update(utterance, now_s)

    def update(self, utterance: ServerUtterance, now_s: float) -> None:
        """Does a part of the work of the utterance's retraction, or answers it."""
        if (pending := utterance.retraction.pending) is None:
            return
        try:
            self._update(utterance, pending, now_s)
        except Exception:
            log.exception("finding the place of a cut failed", extra={"utterance": utterance.id})
            self._termination.fail(utterance, GenerationFailed("the text could not be taken back"))

    def _update(self, utterance: ServerUtterance, pending: PendingRetraction, now_s: float) -> None:
        if not utterance.retraction.can_cut:
            if utterance.retraction.stuck_s(utterance.speech, now_s) >= STUCK_S:
                reason = "the text before a retraction must give the audio messages that were received of it"
                self._termination.fail(utterance, CheckpointRefused(reason))
            return
        cut = None
        if (speech := utterance.speech) is not None:
            if speech.catch_up():
                return
            final = now_s + TIMER_SLACK_S >= pending.deadline_s or pending.speech_over or speech.lost
            text = str(utterance.text)[: pending.end.characters]
            cut = speech.cut(text, int(utterance.outbox.fixed_samples), pending.kept, final=final)
            if cut is None:
                pending.waits = True
                return
        self._answer(utterance, cut, now_s)

    def _answer(self, utterance: ServerUtterance, cut: SpeechCut | None, now_s: float) -> None:
        message = utterance.take_back(cut)
        if utterance.speech is None:
            self._effects.send(message)
            utterance.trail.begin_again()
            if message.text and utterance.has_nothing_to_queue_for():
                self._slots.withdraw(utterance, now_s)
            return
        assert cut is not None  # the speech was cut
        # In the same message, since those before are void from there on: a gateway may be lost between two messages.
        parts = utterance.trail.rewind(cut.past, utterance.speech.seed)
        self._effects.send(message.model_copy(update={"checkpoint": parts or None}))
        self._effects.add(RewindSpeech(utterance, utterance.speech))

    def next_wake_s(self, utterance: ServerUtterance, now_s: float) -> float:
        """When `update` has something to do; infinity for not before another event."""
        pending = utterance.retraction.pending
        if pending is None:
            return math.inf
        if not utterance.retraction.can_cut:
            return pending.looked_s + LOOK_INTERVAL_S
        return pending.deadline_s if pending.waits else now_s
