"""What a gateway is at a moment: the one picture that metrics, balancers and autoscalers are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..pipeline.speech import EngineState


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Recent step times of one part of the engine at one batch size."""

    part: str
    """ "talker" or "codec"."""
    batch: int
    p50_s: float
    p90_s: float
    steps: int
    """Taken since the engine started."""


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Looked up when somebody asks, kept by nobody."""

    sockets: Mapping[str, int]
    """Open ones, by dialect."""
    sockets_limit: int
    slots: int
    active: int
    """Utterances that hold a slot."""
    queued: int
    queue_limit: int
    engine: EngineState
    draining: bool
    leads_s: Sequence[float] = ()
    """For each utterance that plays, how much of it was sent and not heard yet."""
    steps: Sequence[StepTimes] = ()

    @property
    def ready(self) -> bool:
        """Speech can be started here."""
        return self.engine.speaks and not self.draining

    @property
    def load(self) -> float:
        """How full it is: 0 idle, 1 when every slot (or socket) is taken, above it while utterances wait."""
        sockets = sum(self.sockets.values()) / self.sockets_limit
        return max(sockets, (self.active + self.queued) / max(1, self.slots))
