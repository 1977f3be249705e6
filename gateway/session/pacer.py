"""The listener's playback clock of one utterance, and from it when each packet may leave.

TCP backpressure is blind at voice rates: kernel buffers swallow half a minute of Opus before a write blocks.
So audio leaves at the time it is played plus a bounded lead. The clock starts with the first packet, stands
still when the stream has run dry, and is set by every ack. A client that never acks is judged by the clock
alone; one that did and stops is believed for `ACK_HORIZON_MS` more, then its clock stands still, and so does
the talker behind it.
"""

from __future__ import annotations

import math

from voxgate.codecs.pcm import FRAME_MS

ACK_HORIZON_MS = 2000

TIMER_SLACK_S = 0.001
"""Event-loop timers may fire up to a millisecond early."""


class Pacer:
    """Decides when packets leave. `send_ahead_ms` None means at once. All samples are at the format's `rate_hz`."""

    def __init__(self, rate_hz: int, send_ahead_ms: int | None) -> None:
        self._rate_hz = rate_hz
        self._lead_samples = None if send_ahead_ms is None else send_ahead_ms * rate_hz // 1000
        self._frame_samples = FRAME_MS * rate_hz // 1000
        self._sent = 0
        self._anchor_s = 0.0
        self._anchor = 0
        self._free_s = 0.0
        """Until then the listener hears something else."""
        self._acked: int | None = None
        self._believed = 0
        """The clock goes no further: what was sent and, if the client acks, not far beyond its last ack."""

    @property
    def sent_samples(self) -> int:
        return self._sent

    def position_samples(self, now_s: float) -> int:
        """What the listener has played by `now_s`, at most all that was sent."""
        if self._lead_samples is None:
            return self._sent
        elapsed = self._anchor + int((now_s - self._anchor_s + TIMER_SLACK_S) * self._rate_hz)
        if elapsed < self._believed:
            return elapsed if elapsed > 0 else 0
        return self._believed

    def wait_until(self, free_s: float) -> None:
        """The listener will not begin to play this before `free_s`; to be said before anything is sent."""
        self._free_s = free_s

    def frames_heard(self, now_s: float) -> int:
        """Whole talker frames (80 ms) played by `now_s`; unpaced, sent."""
        return self.position_samples(now_s) // self._frame_samples

    def due_s(self, samples: int, now_s: float) -> float:
        """When a packet of `samples` may leave: `now_s` or earlier means now, infinity not before an ack."""
        if self._lead_samples is None or self.position_samples(now_s) >= self._sent:
            return now_s
        return self._reach_s(self._sent + samples - self._lead_samples)

    def next_frame_s(self, now_s: float) -> float:
        """When one more frame will have been heard; infinity if what was sent does not reach so far."""
        return self._reach_s((self.frames_heard(now_s) + 1) * self._frame_samples)

    def played_out_s(self, now_s: float) -> float:
        """When the listener has heard everything sent, by the clock alone."""
        return now_s + (self._sent - self.position_samples(now_s)) / self._rate_hz

    def send(self, samples: int, now_s: float) -> float:
        """A packet of `samples` leaves now; returns for how long the listener had nothing to play before it, in s.

        After a dry spell what follows is heard that much later.
        """
        dry_s = 0.0
        if self.position_samples(now_s) >= self._sent:
            if self._sent and self._lead_samples is not None:
                dry_s = now_s - self._reach_s(self._sent)
            self._anchor_s, self._anchor = max(now_s, self._free_s), self._sent
        self._sent += samples
        self._believed = self._sent if self._acked is None else min(self._sent, self._cap_by_ack())
        return max(0.0, dry_s)

    def ack(self, played_samples: int, now_s: float) -> None:
        """The player says it has played `played_samples`. Older and impossible values are not believed."""
        played = min(played_samples, self._sent)
        if self._acked is None or played >= self._acked:
            self._acked = played
            self._anchor_s, self._anchor = now_s, played
            self._believed = min(self._sent, self._cap_by_ack())

    def stalled_since_s(self) -> float:
        """When a client that stopped to ack had played all it is believed to; infinity if it goes on."""
        if self._acked is None or self._sent <= self._cap_by_ack():
            return math.inf
        return self._anchor_s + (self._cap_by_ack() - self._anchor) / self._rate_hz

    def _cap_by_ack(self) -> int:
        assert self._acked is not None
        return self._acked + ACK_HORIZON_MS * self._rate_hz // 1000

    def _reach_s(self, samples: int) -> float:
        if samples > self._believed:
            return math.inf
        return self._anchor_s + (samples - self._anchor) / self._rate_hz
