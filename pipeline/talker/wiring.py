"""What the engine process needs to know to join in, passed through vLLM's `additional_config`."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from .reports import Reports
from .tables import SlotTables, TableShape

KEY = "voxgate"


@dataclass(frozen=True, slots=True)
class Wiring:
    """`tables`: path of the shared tables; `frames`: for each process that runs generations, the address of the
    `Inbox` that its records go to; `owner_pid`: of the process that started the engine; `bell`: where it is rung for
    (`bell.py`).

    On a GPU: `codec`: the codec worker to serve beside the talker (`WorkerOptions` as JSON); `own_kernels`: whether to
    take our own; `streamed_layers`: whether the library leaves the layers of a few rows to them; `whole_predictor`:
    whether one kernel makes a frame's codes, where it fits; `graph_rows`: rows of the largest step that is a graph.
    """

    checkpoint: str
    tables: str
    frames: tuple[str, ...]
    owner_pid: int
    shape: TableShape
    codec: str | None = None
    own_kernels: bool = False
    streamed_layers: bool = False
    whole_predictor: bool = False
    graph_rows: int = 0
    bell: str = ""

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


def die_with(owner_pid: int) -> None:
    """End this process as soon as the gateway's has ended, however it ended, or our parent's.

    Our parent is not the gateway where we were forked from one that ran ahead; with that gone, the gateway takes us for
    dead and starts another. PR_SET_PDEATHSIG is tied to the thread that started us, which may end earlier than its
    process.
    """
    parent_pid = os.getppid()

    def watch() -> None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(pid) for pid in {owner_pid, parent_pid}], [], [])
        os._exit(1)

    threading.Thread(target=watch, name="owner-watch", daemon=True).start()
