"""An utterance on hold: it sends nothing, and goes on from what was heard or is let go when its time is over."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..outbox import AudioPacket, Outbox
from ..pacer import Pacer
from .sent_packets import HEARD_LATER_MS, SentPackets


@dataclass(frozen=True, slots=True)
class Seam:
    """Where a held utterance goes on: with message `seq`, of whose decoded audio `skip_samples` were heard."""

    seq: int
    skip_samples: int
    position_samples: int
    """The next sample to be heard, counted like `pts`."""
    moved: bool
    """Whether that is behind what was heard, because the packets in between are not kept."""
    held_s: float
    """How long the utterance was held."""


class Hold:
    """The hold of one utterance, at most one at a time. Synchronous; time is an argument.

    It stops the playback clock while it lasts, and keeps the packets that it may have to send again.
    """

    def __init__(self, pacer: Pacer, outbox: Outbox, rate_hz: int, kept_ms: int, *, paced: bool) -> None:
        """`kept_ms`: most milliseconds of audio that are kept besides HEARD_LATER_MS; 0 keeps none."""
        self.until_s = math.inf
        """When the utterance is let go; infinity while it is not held."""
        self.since_s: float | None = None
        """Since when it is held; None while it is not."""
        self.hold_ms: int | None = None
        """For how long it was held last; None while it is not."""
        self.slot_judged_s = -math.inf
        """When it began, or the speech last kept its slot although others waited."""
        self.continued_s = -math.inf
        """When it last went on."""
        self._pacer, self._outbox = pacer, outbox
        self._position = 0
        later_ms = HEARD_LATER_MS if paced else kept_ms  # the clock of unpaced audio does not know what was heard
        self._sent = SentPackets(later_ms * rate_hz // 1000, (kept_ms + HEARD_LATER_MS) * rate_hz // 1000)
        self._keeps = kept_ms > 0

    @property
    def held(self) -> bool:
        return self.since_s is not None

    @property
    def kept_bytes(self) -> int:
        """Bytes of audio that are kept to be sent again."""
        return self._sent.bytes

    def keep(self, packet: AudioPacket, now_s: float) -> None:
        """Keeps a packet that leaves now."""
        if self._keeps:
            self._sent.add(packet, self._pacer.position_samples(now_s))

    def begin(self, position_samples: int, hold_ms: int, now_s: float) -> None:
        """Holds the utterance at a position, or prolongs its hold, whose position then stays."""
        if self.since_s is None:
            self.since_s = self.slot_judged_s = now_s
            self._position = position_samples
            self._pacer.stop(position_samples)
        self.hold_ms, self.until_s = hold_ms, now_s + hold_ms / 1000

    def end(self, now_s: float) -> Seam:
        """Has the outbox send again what was not heard, then the rest; returns where that begins."""
        assert self.since_s is not None, "end before begin"
        held_s = now_s - self.since_s
        self._release()
        self.continued_s = now_s
        self._outbox.put_back(self._sent.take_from(self._position))
        seq, pts = self._outbox.next_seq, self._outbox.next_pts
        position = max(self._position, pts)
        self._pacer.rewind(pts, position, held_s)
        return Seam(seq, position - pts, position, position > self._position, held_s)

    def drop(self) -> None:
        """Forgets everything: the utterance has ended."""
        self._release()
        self._sent.take_from(-1)

    def _release(self) -> None:
        self.since_s, self.hold_ms, self.until_s = None, None, math.inf
