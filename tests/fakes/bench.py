"""A gateway without a port: as many connections as a test wants, on fake sockets, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fakes.packets import FakeEncoder
from fakes.sockets import FakeSocket
from fakes.tone import Script, ToneSynthesizer
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.admission import Admission
from voxgate.gateway.connection import Connection
from voxgate.gateway.dialects.dialect import Dialect
from voxgate.gateway.dialects.endpoint import Handshake, find_endpoint
from voxgate.gateway.dialects.native import Native
from voxgate.gateway.dialects.registry import ENDPOINTS
from voxgate.gateway.observer import Observer
from voxgate.gateway.opening import Offer
from voxgate.gateway.retirement import Retirement
from voxgate.gateway.session import Session
from voxgate.gateway.settings import Settings

PCM = {"codec": "pcm"}


class Bench:
    """Call `connect` for a socket; `close` ends everything and checks that nothing is left behind."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        slots: int = 4,
        observer: Observer | None = None,
        synthesizer: Any = None,
        **options: Any,
    ) -> None:
        self.observer = observer or Observer()
        self.settings = Settings(**options)
        self.synthesizer: Any = synthesizer or ToneSynthesizer(script, slots=slots)
        self.admission = Admission(
            lambda: self.synthesizer.slots, self.settings.queue_length, self.settings.queue_wait_ms
        )
        self.offer = Offer(self.settings, self.synthesizer, FakeEncoder)
        self.retirement = Retirement(self.admission)
        self.sessions: list[Session] = []
        self.runs: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Bench:
        await self.synthesizer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for run in self.runs:
            run.cancel()
        await asyncio.gather(*self.runs, return_exceptions=True)
        await self.retirement.finish(60)
        self.check_clean()

    def connect(self, key: str = "peer", dialect: Dialect | None = None) -> FakeSocket:
        socket = FakeSocket()
        connection = Connection(socket, self.retirement)
        caller = Caller(key, KeyLimits())
        name = f"s{len(self.sessions)}"
        dialect = dialect or Native()
        session = Session(name, caller, self.offer, self.admission, dialect, connection.wake, self.observer)
        self.sessions.append(session)
        self.runs.append(asyncio.get_running_loop().create_task(connection.run(session)))
        return socket

    def dial(self, url: str, key: str = "peer") -> FakeSocket:
        """A socket at a path with a query. Raises what its endpoint refuses it with."""
        parts = urlsplit(url)
        found = find_endpoint(ENDPOINTS, parts.path)
        assert found is not None, parts.path
        endpoint, names = found
        return self.connect(key, endpoint.open(Handshake(names, dict(parse_qsl(parts.query))), self.offer))

    def check_clean(self) -> None:
        """Every speech closed, every slot and every place in the queue given back, no task left."""
        assert not self.synthesizer.open_speeches
        assert (self.admission.active, self.admission.queued, self.retirement.closing) == (0, 0, 0)
        assert not asyncio.all_tasks() - {asyncio.current_task()}


def say(socket: FakeSocket, name: str, text: str, **start: Any) -> None:
    """Send a whole utterance."""
    socket.put(type="start", utterance=name, **{"format": PCM, **start})
    socket.put(type="text", utterance=name, text=text)
    socket.put(type="end", utterance=name)
