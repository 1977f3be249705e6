"""Where one utterance was interrupted: how much its client had heard, and which text that is."""

from __future__ import annotations

from voxgate.pipeline.interface import Speech

from ...messages.server import ContinuedMessage, InterruptedMessage
from ..outbox import Outbox
from ..pacer import Pacer
from .hold import Hold


class Interruption:
    """The interruption of one utterance, for good or for a hold. Synchronous; time is an argument."""

    def __init__(self, utterance: str, hold: Hold, pacer: Pacer, outbox: Outbox, rate_hz: int, pre_skip: int) -> None:
        """`pre_skip`: samples that the client drops at the start; `rate_hz`: of the audio format."""
        self._utterance, self._hold, self._pacer, self._outbox = utterance, hold, pacer, outbox
        self._rate_hz, self._pre_skip = rate_hz, pre_skip
        self._heard_ms = 0
        """Milliseconds that the client had heard when it interrupted."""
        self._seam = 0
        """The sample with which the utterance last went on after a hold."""

    def stop(self, played_ms: int | None, unsent: int | None, now_s: float) -> None:
        """Stops where the client has played it, for good. Without `played_ms`, the playback clock decides.

        `unsent`: the first sample of packets that were taken and not sent.
        """
        if not self._hold.held:
            self._find_position(played_ms, unsent, now_s)
        self._outbox.drop()
        self._hold.drop()

    def hold(self, played_ms: int | None, unsent: int | None, hold_ms: int, now_s: float) -> None:
        """Stops as `stop` does, for `hold_ms`; of an utterance that is held, the position stays."""
        position = 0 if self._hold.held else self._find_position(played_ms, unsent, now_s)
        self._hold.begin(position, hold_ms, now_s)

    def _find_position(self, played_ms: int | None, unsent: int | None, now_s: float) -> int:
        """Finds what the client has heard, in whole milliseconds, so that it knows the next sample; returns that."""
        clock = max(self._pacer.position_samples(now_s), self._seam)
        # What is sent again before the seam was heard.
        reached = max(self._pacer.sent_samples, clock)
        if unsent is not None:
            reached = min(reached, max(unsent, self._seam))
        heard_ms = self._ms(max(0, clock - self._pre_skip)) if played_ms is None else played_ms
        self._heard_ms = min(heard_ms, self._ms(max(0, reached - self._pre_skip)))
        return min(self._heard_ms * self._rate_hz // 1000 + self._pre_skip, reached)

    def end_hold(self, now_s: float) -> tuple[ContinuedMessage, float]:
        """Goes on from where the hold began; returns the message that says with which packet, and the time held."""
        seam = self._hold.end(now_s)
        self._seam = seam.position_samples
        if seam.moved:
            self._heard_ms = self._ms(max(0, seam.position_samples - self._pre_skip))
        message = ContinuedMessage(
            utterance=self._utterance, seq=seam.seq, skip_samples=seam.skip_samples, played_ms=self._heard_ms
        )
        return message, seam.held_s

    def find_spoken_text(self, speech: Speech | None) -> bool:
        """Does a part of the work for `message`; returns whether more is left for later turns of the event loop."""
        return speech is not None and bool(self._heard_ms) and speech.catch_up()

    def message(self, text: str, speech: Speech | None, limit: int) -> InterruptedMessage:
        """Returns the answer, with the part of `text` that was heard: as `speech` says, at most `limit` characters."""
        spoken = speech.spoken_until(self._heard_ms) if speech is not None and self._heard_ms else 0
        spoken = max(0, min(spoken, limit, len(text)))
        return InterruptedMessage(
            utterance=self._utterance,
            played_ms=self._heard_ms,
            text_spoken=text[:spoken],
            text_remaining=text[spoken:],
            hold_ms=self._hold.hold_ms,
        )

    def _ms(self, samples: int) -> int:
        return samples * 1000 // self._rate_hz
