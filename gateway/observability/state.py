"""What a gateway is at a moment: the one picture that metrics, balancers and autoscalers are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from voxgate.pipeline.interface import EngineState, Synthesizer

from ..settings import Settings


@dataclass(frozen=True, slots=True)
class StepTimeQuantiles:
    """Recent step times of one part of the engine at one batch size."""

    part: str
    """ "talker" or "codec"."""
    batch: int
    p50_s: float
    p90_s: float
    steps: int
    """Taken since the engine started."""


class AdmissionCounts(Protocol):
    """The numbers of `session.admission.Admission`."""

    @property
    def active(self) -> int: ...

    @property
    def queued(self) -> int: ...

    @property
    def slots(self) -> int: ...


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Looked up when somebody asks, kept by nobody."""

    sockets: Mapping[str, int]
    """Open ones, by protocol."""
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
    steps: Sequence[StepTimeQuantiles] = ()

    @classmethod
    def now(
        cls,
        settings: Settings,
        admission: AdmissionCounts,
        synthesizer: Synthesizer,
        *,
        sockets: Mapping[str, int],
        engine: EngineState,
        draining: bool,
        leads_s: Sequence[float],
    ) -> GatewayState:
        """What can be asked of those who know, and what only the caller does."""
        return cls(
            sockets=sockets,
            sockets_limit=settings.sockets,
            slots=admission.slots,
            active=admission.active,
            queued=admission.queued,
            queue_limit=settings.queue_length,
            engine=engine,
            draining=draining,
            leads_s=leads_s,
            steps=[
                StepTimeQuantiles(part, step.batch, step.p50_s, step.p90_s, step.steps)
                for part, steps in synthesizer.step_times.items()
                for step in steps
            ],
        )

    @property
    def ready(self) -> bool:
        """Speech can be started here."""
        return self.engine.speaks and not self.draining

    @property
    def load(self) -> float:
        """How full it is: 0 idle, 1 when every slot (or socket) is taken, above it while utterances wait."""
        sockets = sum(self.sockets.values()) / self.sockets_limit
        return max(sockets, (self.active + self.queued) / max(1, self.slots))
