"""Several gateways behind a balancer, in virtual time: any of them is killed, or drained and replaced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fakes.gateway.lossy_network import ClientEnd, LossyNetwork, client_session
from voxgate.client.errors import Refused, Unreachable
from voxgate.client.session import Session

GRACE_S = 30.0
"""Time that a drained gateway has for its speech."""
NOTICED_S = 0.3
"""Time until the balancer sends nothing more to a gateway that is drained."""


class LossyFleet:
    """`count` gateways with the same model; `synthesizer` makes one for each. Connections go to them by chance."""

    def __init__(
        self, synthesizer: Callable[[], Any], *, chance: random.Random, count: int = 3, **options: object
    ) -> None:
        self._synthesizer, self._chance, self._count, self._options = synthesizer, chance, count, options
        self._routed: list[LossyNetwork] = []
        """Gateways to which the balancer sends new connections."""
        self._gateways: list[LossyNetwork] = []
        self._changes: set[asyncio.Task[None]] = set()
        self.drains_s: list[float] = []
        """How long each drain took."""

    async def __aenter__(self) -> LossyFleet:
        for _ in range(self._count):
            await self._add()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._changes)
        for gateway in self._gateways:
            await gateway.__aexit__()

    async def _add(self) -> None:
        gateway = LossyNetwork(self._synthesizer(), checkpoints=True, **self._options)
        await gateway.__aenter__()
        self._gateways.append(gateway)
        self._routed.append(gateway)

    def _start(self, change: Any) -> None:
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    def kill(self, number: int, client_learns_s: float | None, *, restart_s: float) -> None:
        """Loses a gateway with all its connections; another one takes its place later."""
        if self._gateways:
            self._start(self._kill(self._gateways[number % len(self._gateways)], client_learns_s, restart_s))

    async def _kill(self, gateway: LossyNetwork, client_learns_s: float | None, restart_s: float) -> None:
        self._forget(gateway)
        for connection in gateway.connections:
            if not connection.cut_off:
                connection.cut(client_learns_s, 0.0)
        await gateway.__aexit__()
        await asyncio.sleep(restart_s)
        await self._add()

    def cut(self, client_learns_s: float | None, gateway_learns_s: float | None) -> None:
        """Loses every connection; the gateways go on."""
        for gateway in self._gateways:
            for connection in gateway.connections:
                if not connection.cut_off:
                    connection.cut(client_learns_s, gateway_learns_s)

    def lose_engine(self, number: int, *, restart_s: float) -> None:
        """Loses the engine of a gateway; another one takes its place later."""
        if self._gateways:
            self._start(self._lose_engine(self._gateways[number % len(self._gateways)], restart_s))

    async def _lose_engine(self, gateway: LossyNetwork, restart_s: float) -> None:
        gateway.synthesizer.lose()  # type: ignore[attr-defined]  # either of the synthesizers without a model
        await asyncio.sleep(restart_s)
        if gateway in self._gateways:
            await gateway.synthesizer.start()  # type: ignore[attr-defined]  # as above
            gateway.admission.renew(asyncio.get_running_loop().time())

    def drain(self, number: int, *, restart_s: float) -> None:
        """Shuts a gateway down as SIGTERM does; another one takes its place later."""
        if self._gateways:
            self._start(self._drain(self._gateways[number % len(self._gateways)], restart_s))

    async def _drain(self, gateway: LossyNetwork, restart_s: float) -> None:
        if gateway.sessions.draining:
            return
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        loop.call_later(NOTICED_S, lambda: gateway in self._routed and self._routed.remove(gateway))
        await gateway.sessions.drain(GRACE_S)
        self.drains_s.append(loop.time() - begun_s)
        if gateway in self._gateways:  # otherwise it was killed meanwhile
            self._forget(gateway)
            await gateway.__aexit__()
            await asyncio.sleep(restart_s)
            await self._add()

    def _forget(self, gateway: LossyNetwork) -> None:
        for gateways in (self._gateways, self._routed):
            if gateway in gateways:
                gateways.remove(gateway)

    @asynccontextmanager
    async def client(self, name: str = "peer", *, latency_s: float = 0.01) -> AsyncIterator[Session]:
        """The Python client's session with whichever gateway the balancer chooses."""

        async def open_wire(session: str, timeout_s: float) -> ClientEnd:
            await asyncio.sleep(min(latency_s, timeout_s))
            if not self._routed:
                raise Unreachable("no gateway is there")
            gateway = self._chance.choice(self._routed)
            if gateway.sessions.draining:
                raise Refused(503, "the gateway is shutting down", code="draining")
            return gateway.open(gateway.grant(name), session, latency_s).client

        async with client_session(open_wire) as session:
            yield session
