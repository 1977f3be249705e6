"""What the engine process needs to know to join in, passed through vLLM's `additional_config`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import zmq

from .frames import addressed
from .tables import SlotTables, TableShape

KEY = "voxgate"


class Reports:
    """The way from the engine to the processes whose generations it runs. Not thread-safe."""

    def __init__(self, addresses: Sequence[str], groups: int) -> None:
        self._channels = [_connected(address) for address in addresses]
        self._groups = groups

    def send(self, message: bytes) -> None:
        """Send records to whom they concern; those of a process that takes none any more are dropped."""
        if len(self._channels) == 1:
            self._channels[0].send(message)
            return
        for owner, part in addressed(message, self._groups).items():
            if not owner:
                self._channels[0].send(part)
                continue
            # One that hangs must not hold up the step that everybody's frames are made in.
            with suppress(zmq.Again, IndexError):
                self._channels[owner].send(part, zmq.DONTWAIT)


def _connected(address: str) -> zmq.Socket[bytes]:
    channel: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
    # Never blocks the engine's end.
    channel.setsockopt(zmq.LINGER, 0)
    channel.connect(address)
    return channel


@dataclass(frozen=True, slots=True)
class Wiring:
    """`tables`: path of the shared tables; `frames`: for each process that runs generations, the ZeroMQ address that
    the records go to; `owner_pid`: of the process that started the engine.

    On a GPU: `codec`: the codec worker to serve beside the talker (`WorkerOptions` as JSON); `own_kernels`: whether to
    take our own; `graph_rows`: rows of the largest step that is a graph.
    """

    checkpoint: str
    tables: str
    frames: tuple[str, ...]
    owner_pid: int
    shape: TableShape
    codec: str | None = None
    own_kernels: bool = False
    graph_rows: int = 0

    def as_config(self) -> dict[str, Any]:
        return {KEY: asdict(self)}

    @classmethod
    def of(cls, vllm_config: Any) -> Wiring:
        fields = vllm_config.additional_config[KEY]
        return cls(**fields | {"shape": TableShape(**fields["shape"])})

    def connect(self) -> Reports:
        """A way of sending the gateway records; every thread that sends needs its own."""
        return Reports(self.frames, self.shape.groups)

    def attach(self) -> SlotTables:
        return SlotTables.attach(self.shape, self.tables)


def die_with(owner_pid: int, poll_s: float = 1.0) -> None:
    """End this process soon after the gateway's has ended, however it ended.

    PR_SET_PDEATHSIG is tied to the thread that spawned us, which may end earlier than its process; polling is not.
    """

    def watch() -> None:
        while os.getppid() == owner_pid:
            time.sleep(poll_s)
        os._exit(1)

    threading.Thread(target=watch, name="owner-watch", daemon=True).start()
