"""The playback clock of one utterance, and the time at which each of its packets may leave.

TCP backpressure does not pace speech: kernel buffers accept half a minute of Opus before a write blocks. Each packet
therefore leaves when it is due for playback, minus a bounded lead. The clock starts with the first packet, stands still
while everything sent has been played (an underrun), and is corrected by every ack of the client. The clock of a client
that never acks runs by itself; for a client that acked once and stopped, it runs `ACK_HORIZON_MS` further and then
stands still, and generation stops with it.
"""

from __future__ import annotations

import math

from voxgate.codecs.pcm import FRAME_MS

ACK_HORIZON_MS = 2000
"""Milliseconds of audio that a client is assumed to play beyond its last ack."""

TIMER_SLACK_S = 0.001
"""Event-loop timers may fire this much early."""


class Pacer:
    """Decides when packets leave. Sample counts are at the format's `rate_hz`; times are arguments.

    `send_ahead_ms` is the lead; None sends every packet at once.
    """

    def __init__(self, rate_hz: int, send_ahead_ms: int | None) -> None:
        self._rate_hz = rate_hz
        self.send_ahead_s = 0.0 if send_ahead_ms is None else send_ahead_ms / 1000
        """The lead; 0 without pacing."""
        self._lead_samples = None if send_ahead_ms is None else send_ahead_ms * rate_hz // 1000
        self._frame_samples = FRAME_MS * rate_hz // 1000
        self._sent = 0
        self._anchor_s = 0.0
        """Time at which the client played sample `_anchor`; the clock runs from there."""
        self._anchor = 0
        self._earliest_start_s = 0.0
        self._first_s: float | None = None
        """Time of the first packet."""
        self._skipped = 0
        """Samples before it that the client has got elsewhere."""
        self._acked: int | None = None
        self._limit = 0
        """The clock stops here: at what was sent and, for a client that acks, `ACK_HORIZON_MS` after its last ack."""
        self._rewound = False
        """Whether the next packet is the first one after `rewind`."""

    @property
    def sent_samples(self) -> int:
        return self._sent

    def position_samples(self, now_s: float) -> int:
        """Samples that the client has played by `now_s`, at most all that were sent."""
        if self._lead_samples is None:
            return self._sent
        elapsed = self._anchor + int((now_s - self._anchor_s + TIMER_SLACK_S) * self._rate_hz)
        if elapsed < self._limit:
            return elapsed if elapsed > 0 else 0
        return self._limit

    def hold_until(self, start_s: float) -> None:
        """Sets the earliest time at which the client begins to play; call it before the first packet."""
        self._earliest_start_s = start_s

    def frames_played(self, now_s: float) -> int:
        """Whole talker frames (80 ms) played by `now_s`; without pacing, frames sent."""
        return self.position_samples(now_s) // self._frame_samples

    def due_s(self, samples: int, now_s: float) -> float:
        """When a packet of `samples` may leave: at most `now_s` for now, infinity for not before an ack."""
        if self._lead_samples is None or self.position_samples(now_s) >= self._sent:
            return now_s
        return self.reach_s(self._sent + samples - self._lead_samples)

    def next_frame_s(self, now_s: float) -> float:
        """When one more frame will have been played; infinity if less than that was sent."""
        return self.reach_s((self.frames_played(now_s) + 1) * self._frame_samples)

    def reach_s(self, samples: int) -> float:
        """When the clock reaches `samples`; infinity if that is beyond its limit, the past before the first packet."""
        if samples > self._limit:
            return math.inf
        return self._anchor_s + (samples - self._anchor) / self._rate_hz

    def played_out_s(self, now_s: float) -> float:
        """When the client will have played everything sent, by the clock alone."""
        # Playback begins in the future while the client still plays an earlier utterance.
        return max(now_s, self._anchor_s) + (self._sent - self.position_samples(now_s)) / self._rate_hz

    def send(self, samples: int, now_s: float) -> float:
        """Records that a packet of `samples` leaves; returns how long the client had nothing to play before it, in s.

        After such an underrun the clock starts again with this packet.
        """
        underrun_s = 0.0
        first = self._first_s is None
        if first:
            self._first_s = now_s
        if self.position_samples(now_s) >= self._sent:
            if not (first or self._rewound) and self._lead_samples is not None:
                underrun_s = now_s - self.reach_s(self._sent)
            # After `rewind` the client skips a part of the packet, which it has heard.
            self._anchor_s, self._anchor = max(now_s, self._earliest_start_s), max(self._anchor, self._sent)
            self._rewound = False
        self._sent += samples
        self._limit = self._sent if self._acked is None else min(self._sent, self._ack_horizon())
        return max(0.0, underrun_s)

    def skip(self, samples: int) -> None:
        """Counts a packet before the first one that leaves: the client has got it elsewhere, and counts as played."""
        self._sent += samples
        self._skipped = self._anchor = self._limit = self._sent

    @property
    def skipped_samples(self) -> int:
        """Samples of the packets that the client has got elsewhere."""
        return self._skipped

    def stop(self, samples: int) -> None:
        """Stops the clock where the client has stopped to play, until the first packet after `rewind`."""
        self._anchor = self._limit = samples

    def rewind(self, sent_samples: int, samples: int, stopped_s: float) -> None:
        """What comes behind `sent_samples` is sent again, and the client plays on at `samples`, in the first packet.

        `stopped_s`: how long the clock has stood still.
        """
        self._sent = sent_samples
        self._anchor = self._limit = samples
        self._rewound = True
        if self._acked is not None:
            self._acked = samples
        if self._first_s is not None:
            self._first_s += stopped_s

    def ack(self, played_samples: int, now_s: float) -> None:
        """Sets the clock to the client's report, at most what was sent. Ignores a report older than the last one.

        It counts at most the time since the first packet plus the lead: more cannot have been played, and the client
        would get its speech faster than playback, with a listener's priority.
        """
        played = min(played_samples, self._sent, self._playable(now_s))
        if self._acked is None or played >= self._acked:
            self._acked = played
            self._anchor_s, self._anchor = now_s, played
            self._limit = min(self._sent, self._ack_horizon())

    def stalled_since_s(self) -> float:
        """When the clock of a client that stopped to ack reached its limit; infinity for others and without pacing."""
        if self._acked is None or self._lead_samples is None or self._sent <= self._ack_horizon():
            return math.inf
        return self._anchor_s + (self._ack_horizon() - self._anchor) / self._rate_hz

    def _playable(self, now_s: float) -> int:
        """Samples that a client can have played since the first packet, and the lead, which allows for its clock."""
        if self._lead_samples is None or self._first_s is None:
            return self._sent
        return self._skipped + int((now_s - self._first_s) * self._rate_hz) + self._lead_samples

    def _ack_horizon(self) -> int:
        assert self._acked is not None
        return self._acked + ACK_HORIZON_MS * self._rate_hz // 1000
