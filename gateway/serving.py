"""A gateway's life from its first answer to its last, as signals tell it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Protocol

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_S = 2.0
"""What is left at the very end gets so long to end properly."""


class Service(Protocol):
    """A gateway, of one process or of several."""

    @property
    def port(self) -> int:
        """The port in use."""

    async def open(self) -> None:
        """Listen. Raises OSError when the address is taken."""

    def reload(self) -> None:
        """Read keys and certificate anew."""

    async def keep_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""

    async def close(self) -> None:
        """Cut what is still open, and stop the engine."""


async def serve_until_told(gateway: Service, on_listening: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal returns at once. SIGHUP reloads keys.

    Raises what `open` and `keep_engine` do. Cancelling it closes everything without a drain.
    """
    loop = asyncio.get_running_loop()
    try:
        await gateway.open()
    except BaseException:
        await gateway.close()
        raise
    stop, stop_now = asyncio.Event(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, lambda: (stop_now if stop.is_set() else stop).set())
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    engine = loop.create_task(gateway.keep_engine())
    try:
        if on_listening is not None:
            on_listening(gateway.port)
        if engine in await _first(engine, loop.create_task(stop.wait())):
            return engine.result()
        await _first(loop.create_task(gateway.drain()), loop.create_task(stop_now.wait()))
    finally:
        engine.cancel()
        await asyncio.wait([engine], timeout=_LAST_S)
        await gateway.close()
        for number in (*_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _first(*tasks: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
    """Wait for the first to finish, cancel the others; returns those that finished."""
    try:
        return (await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))[0]
    finally:
        for task in tasks:
            task.cancel()
