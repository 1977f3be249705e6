"""A gateway without a port: connections on fake sockets, in virtual time."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fakes.gateway.packet_encoder import FakeEncoder
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.observability.events import Observer
from voxgate.gateway.protocols.endpoint import EndpointRequest, find_endpoint
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.protocols.registry import WEBSOCKET_ENDPOINTS
from voxgate.gateway.session.admission import AdmissionQueue
from voxgate.gateway.session.checkpoints.trail import Checkpoints
from voxgate.gateway.session.protocol import WireProtocol
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.session.utterance_factory import UtteranceFactory
from voxgate.gateway.settings import Settings
from voxgate.gateway.transport.connection import Connection, SpeechCloser
from voxgate.gateway.transport.turn_budget import TURN_STEPS, TurnBudget

PCM = {"codec": "pcm"}


class InProcessGateway:
    """`connect` gives a socket. Leaving the gateway ends all connections and checks that everything was released."""

    def __init__(
        self,
        script: ToneScript | None = None,
        *,
        slots: int = 4,
        observer: Observer | None = None,
        synthesizer: Any = None,
        encoder: Any = FakeEncoder,
        **options: Any,
    ) -> None:
        self.observer = observer or Observer()
        self.settings = Settings(**options)
        self.synthesizer: Any = synthesizer or ToneSynthesizer(script, slots=slots)
        self.admission = AdmissionQueue(
            lambda: self.synthesizer.slots,
            self.settings.queue_length,
            self.settings.queue_wait_ms,
            lambda: math.inf if self.synthesizer.state.speaks else 0,
            caller_share=self.settings.caller_share,
        )
        checkpoints = Checkpoints(lambda key: f"secret {key}".encode(), self.synthesizer.identity)
        self.factory = UtteranceFactory(self.settings, self.synthesizer, encoder, checkpoints=checkpoints)
        self.speech_closer = SpeechCloser(self.admission)
        self.steps = TurnBudget(TURN_STEPS)
        self.sessions: list[ServerSession] = []
        self.runs: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> InProcessGateway:
        await self.synthesizer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for run in self.runs:
            run.cancel()
        await asyncio.gather(*self.runs, return_exceptions=True)
        await self.speech_closer.finish(60)
        self.check_clean()

    async def restart_engine(self) -> None:
        """Starts the lost engine again, as the supervisor does."""
        await self.synthesizer.start()
        self.admission.renew(asyncio.get_running_loop().time())

    def connect(
        self, key: str = "peer", protocol: WireProtocol | None = None, limits: KeyLimits | None = None
    ) -> FakeSocket:
        socket = FakeSocket()
        connection = Connection(socket, self.speech_closer, partial(self.steps.enter, key))
        caller = Caller(key, limits or KeyLimits())
        name = f"s{len(self.sessions)}"
        protocol = protocol or NativeProtocol()
        factory = self.factory if protocol.checkpoints else self.factory.without_checkpoints()
        session = ServerSession(name, caller, factory, self.admission, protocol, connection.wake, self.observer)
        self.sessions.append(session)
        self.runs.append(asyncio.get_running_loop().create_task(connection.run(session)))
        return socket

    def dial(self, url: str, key: str = "peer") -> FakeSocket:
        """A socket at a path with a query. Raises the refusal of its endpoint."""
        parts = urlsplit(url)
        found = find_endpoint(WEBSOCKET_ENDPOINTS, parts.path)
        assert found is not None, parts.path
        endpoint, names = found
        return self.connect(key, endpoint.open(EndpointRequest(names, dict(parse_qsl(parts.query))), self.factory))

    def check_clean(self) -> None:
        """Assert that every speech, slot and place in the queue was released and that no task is left."""
        assert not self.synthesizer.open_speeches
        assert (self.admission.active, self.admission.queued, self.speech_closer.closing) == (0, 0, 0)
        assert not asyncio.all_tasks() - {asyncio.current_task()}


def say(socket: FakeSocket, name: str, text: str, **start: Any) -> None:
    """Send an utterance: start, text and end."""
    socket.put(type="start", utterance=name, **{"format": PCM, **start})
    socket.put(type="text", utterance=name, text=text)
    socket.put(type="end", utterance=name)
