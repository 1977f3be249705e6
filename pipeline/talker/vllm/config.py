"""What the engine process needs to know to join in, passed through vLLM's `additional_config`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...ipc.report_channel import ReportSender
from ...ipc.slot_tables import SlotTables, TableShape

KEY = "voxgate"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`tables`: path of the shared tables; `frames`: for each process that runs generations, the address of the
    `ReportReceiver` that its records go to; `owner_pid`: of the process that started the engine; `wakeup_address`: where it is rung for
    (`bell.py`).

    On a GPU: `codec`: the codec worker to serve beside the talker (`CodecWorkerOptions` as JSON); `own_kernels`: whether to
    take our own; `streamed_layers`: whether the library leaves the layers of a few rows to them; `persistent_predictor`:
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
    persistent_predictor: bool = False
    graph_rows: int = 0
    wakeup_address: str = ""

    def as_config(self) -> dict[str, Any]:
        return {KEY: asdict(self)}

    @classmethod
    def of(cls, vllm_config: Any) -> EngineConfig:
        fields = vllm_config.additional_config[KEY]
        return cls(**fields | {"shape": TableShape(**fields["shape"])})

    def connect(self) -> ReportSender:
        """A way of sending the gateway records; every thread that sends needs its own."""
        return ReportSender(self.frames, self.shape.groups)

    def attach(self) -> SlotTables:
        return SlotTables.attach(self.shape, self.tables)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`slots`: generations at once; `max_frames`: longest generation; `threads`: CPU threads of the engine process.
    `attached_processes`: other processes that run generations in it, in slots that were lent to them. `prefilled_prompts`: prompts that are
    read before they are asked for (`warm.py`).

    On a GPU: `codec`: in_process_options of a codec to serve beside the talker; `dtype` to compute in, bfloat16 unless told;
    `own_kernels`: ours for layers, input, first draw and token instead of vLLM's and torch's; `streamed_layers`: of
    these, the layers of a few rows without the library; `persistent_predictor`: one kernel for a frame's codes, where it
    fits; `gpu_memory`: most of the device's memory that it may take, as a share.
    """

    slots: int = 16
    max_frames: int = 400
    device: str = "cpu"
    codec: str | None = None
    dtype: str | None = None
    own_kernels: bool = True
    streamed_layers: bool = False
    persistent_predictor: bool = False
    gpu_memory: float = 0.7
    threads: int = 1
    attached_processes: int = 0
    prefilled_prompts: int = 0
    kv_cache_bytes: int | None = None
    start_timeout_s: float = 300.0
