"""A state of the gateway and a record of an utterance, for tests of what is made of them."""

from __future__ import annotations

from voxgate.gateway.observability.events import DONE, UtteranceRecord
from voxgate.gateway.observability.state import GatewayState, StepTimeQuantiles
from voxgate.gateway.observability.utterance_figures import Change
from voxgate.pipeline.interface import EngineState

STATE = GatewayState(
    sockets={"native": 3},
    sockets_limit=100,
    slots=8,
    active=2,
    queued=1,
    queue_limit=64,
    engine=EngineState.READY,
    draining=False,
    leads_s=[0.05, 0.3, 0.4],
    steps=[StepTimeQuantiles("talker", 4, 0.012, 0.02, 100), StepTimeQuantiles("codec", 1, 0.004, 0.005, 90)],
)
RECORD = UtteranceRecord(
    id="r-1.1",
    protocol="native",
    key="team-a",
    outcome=DONE,
    voice="ada",
    codec="opus",
    characters=20,
    audio_s=2.0,
    audio_bytes=8000,
    underruns=2,
    continued=1,
    changes={Change.RESTORED: 1, Change.RETRACTED: 2},
    silence_s=2.5,
    underrun_s=0.3,
    started_s=1.0,
    queued_s=1.25,
    granted_s=1.5,
    text_s=1.25,
    first_packet_s=1.75,
)
