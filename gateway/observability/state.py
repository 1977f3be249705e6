"""A snapshot of the gateway, on which metrics, balancers and autoscalers rely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """Steps since the engine started."""


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
    """The state of a gateway at one moment, collected on request."""

    sockets: Mapping[str, int]
    """Open sockets by protocol."""
    sockets_limit: int
    slots: int
    active: int
    """Utterances that hold a slot."""
    queued: int
    queue_limit: int
    engine: EngineState
    draining: bool
    leads_s: Sequence[float] = ()
    """Seconds of audio sent ahead of playback, for each playing utterance."""
    steps: Sequence[StepTimeQuantiles] = ()
    capacity_changes: Mapping[str, int] = field(default_factory=dict)
    """Changes of `slots` that steps caused, by cause."""

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
        """Collects the state; the keyword arguments are known to the caller only."""
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
            capacity_changes=dict(synthesizer.capacity_changes),
        )

    @property
    def ready(self) -> bool:
        """Whether speech can be started."""
        return self.engine.speaks and not self.draining

    @property
    def load(self) -> float:
        """0 when idle, 1 when all slots or sockets are taken, more while utterances wait."""
        sockets = sum(self.sockets.values()) / self.sockets_limit
        return max(sockets, (self.active + self.queued) / max(1, self.slots))
