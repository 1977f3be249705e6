"""What the gateway tells of its work: called when things begin, end or are refused, never for a packet.

The calls sit where sessions and sockets are decided about; what becomes of them (metrics, traces, log lines) is
`telemetry.py`. An `Observer` itself ignores them all, so that whoever drives a session without it needs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..pipeline.speech import Milestones

DONE = "done"
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class UtteranceRecord:
    """One utterance, told once when it is over. Times `_s` are points on the loop's clock, durations in seconds."""

    id: str
    """The one name it has in logs and traces, unique over all gateways."""
    dialect: str
    key: str
    """The name of the client's key; empty when clients need none."""
    outcome: str
    """DONE, INTERRUPTED, or the code of the error that ended it."""
    voice: str
    codec: str
    characters: int
    audio_s: float
    """Audio sent."""
    audio_bytes: int
    underruns: int
    """How often the listener's clock ran dry with text still to be spoken."""
    dry_s: float
    """How long it was dry, in all."""
    started_s: float
    granted_s: float | None
    """When it got a talker slot; None when it never did."""
    text_s: float | None
    """When its first text arrived."""
    first_packet_s: float | None
    milestones: Milestones = field(default_factory=Milestones)

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio: from the first text to the first packet, waiting for a slot included."""
        if self.text_s is None or self.first_packet_s is None:
            return None
        return self.first_packet_s - self.text_s

    @property
    def queue_wait_s(self) -> float | None:
        return None if self.granted_s is None else self.granted_s - self.started_s


class Observer:
    """Ignores everything; subclass it to listen. Calls must return at once and must not raise."""

    def session_opened(self, dialect: str, key: str) -> None:
        """A socket (or a request) was taken, from the holder of `key` (empty where clients need none)."""

    def handshake_refused(self, reason: str) -> None:
        """A socket or request was refused before it became a session; `reason` is one of few constant words."""

    def error_sent(self, dialect: str, code: str) -> None:
        """A client was told of an error, whether it ended an utterance or only refused a message."""

    def utterance_over(self, record: UtteranceRecord) -> None:
        """An utterance ended, however it did."""

    def engine_ready(self) -> None:
        """The voice model was loaded, for the first time or again."""
