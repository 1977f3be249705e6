"""What one utterance under load came to, as it travels between processes and into the file of results."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BUFFERS_MS = (0, 80, 200)
"""Start buffers of the simulated players."""


class Manner(StrEnum):
    """How a listener behaves."""

    PLAIN = "plain"
    BARGE_IN = "barge_in"
    """Interrupts in mid-speech."""
    SLOW = "slow"
    """Stops reading for a while."""
    ABRUPT = "abrupt"
    """Cuts the connection without a word."""


class Outcome(StrEnum):
    DONE = "done"
    INTERRUPTED = "interrupted"
    DROPPED = "dropped"
    """Cut by the listener himself, as planned."""
    REFUSED = "refused"
    """The server said, in its own words, that it would not; `code` is the reason."""
    FAILED = "failed"


@dataclass(slots=True)
class Sample:
    """Times in milliseconds; None where it did not come so far. `underruns` by start buffer."""

    stream: int
    manner: Manner = Manner.PLAIN
    outcome: Outcome = Outcome.FAILED
    code: str = ""
    late_ms: float = 0.0
    """How much later than intended the client began; the fault of the client's machine."""
    connect_ms: float | None = None
    first_byte_ms: float | None = None
    """From the first text to the first audio."""
    first_audible_ms: float | None = None
    """From the first text to the first sound that is not silence, for a player without a buffer."""
    after_sentence_ms: float | None = None
    """From the end of the first sentence to the first audio; negative when speech began before it."""
    queue_ms: float | None = None
    server_ms: float | None = None
    """From the first text to the first audio, as the server saw it."""
    cancel_ms: float | None = None
    """From the interrupt to the server's word that nothing more comes."""
    gaps_ms: list[float] = field(default_factory=list)
    """Between messages with audio."""
    underruns: dict[int, int] = field(default_factory=dict)
    audio_s: float = 0.0
    playing_s: float = 0.0
    """From the first audio to the last."""

    @property
    def listened(self) -> bool:
        """It was played as it came, so that its gaps are the server's."""
        return self.outcome is Outcome.DONE and self.manner is not Manner.SLOW

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Sample:
        underruns = {int(buffer_ms): count for buffer_ms, count in fields["underruns"].items()}
        manner, outcome = Manner(fields["manner"]), Outcome(fields["outcome"])
        return cls(**{**fields, "manner": manner, "outcome": outcome, "underruns": underruns})
