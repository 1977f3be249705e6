"""Options of the talker's engine, and what its process receives of them through vLLM's `additional_config`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...cuda.graph_sizes import backbone_graph_sizes
from ...ipc.report_channel import ReportSender
from ...ipc.slot_tables import SlotTables, TableShape
from .gpu_memory import GpuMemoryPlan

_KEY = "voxgate"
"""Key in `additional_config`."""
_STEP_POSITIONS = 2048
"""Positions of a step with vLLM's kernels, whose graphs hold no prompts: the prompts of a few hundred utterances."""


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """How the talker uses a GPU: made from the settings and passed unchanged down to the model.

    `voxgate_kernels`: this project's kernels for layers, input embedding and sampling; otherwise vLLM's and torch's.
    `persistent_predictor`: one kernel computes the codes of a frame for up to 32 rows, where GPU and model allow it.
    Its blocks wait for one another, so an engine that follows a lost one does without (`QwenSynthesizer.close`).
    `memory_share`: largest share of the GPU's free memory that talker and codec may take. `fp8_cache`: keys and values
    are kept in float8 (e4m3), which takes half the memory and is less exact; on Hopper.
    """

    voxgate_kernels: bool = True
    persistent_predictor: bool = True
    memory_share: float = 0.9
    fp8_cache: bool = False


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the caller chooses.

    `slots`: generations at once; `max_frames`: longest generation; `device`: "cpu" or "cuda"; `gpu`: ignored on a CPU.
    `codec`: `CodecWorkerOptions` as JSON of a codec to run in the talker's process, on a GPU. `dtype`: of the
    computation; None is float32 on a CPU and bfloat16 on a GPU. `threads`: CPU threads of the engine process.
    `attached_processes`: other processes that run generations in leased slots. `prefilled_prompts`: rows of the tables
    for prompts that are computed ahead (`prompt_pool.py`). `kv_cache_bytes`: None takes what the slots need.
    """

    slots: int = 16
    max_frames: int = 400
    device: str = "cpu"
    gpu: GpuOptions = GpuOptions()
    codec: str | None = None
    dtype: str | None = None
    threads: int = 1
    attached_processes: int = 0
    prefilled_prompts: int = 0
    kv_cache_bytes: int | None = None
    start_timeout_s: float = 300.0

    @property
    def voxgate_kernels(self) -> bool:
        """Whether the model runs on this project's GPU kernels."""
        return self.device != "cpu" and self.gpu.voxgate_kernels


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine's process needs to join in.

    `checkpoint`: its folder. `tables`: path of the shared `SlotTables`. `report_addresses`: of the `ReportReceiver` of
    each process that runs generations, its own number as the index. `wakeup_address`: of the `WakeupQueue`.
    `owner_pid`: the process that started the engine. `memory`: of the GPU; None on a CPU.
    """

    checkpoint: str
    options: EngineOptions
    shape: TableShape
    tables: str
    report_addresses: tuple[str, ...]
    wakeup_address: str
    owner_pid: int
    memory: GpuMemoryPlan | None = None

    def as_additional_config(self) -> dict[str, Any]:
        """For vLLM's `additional_config`, of which it requires that JSON can express it."""
        return {_KEY: asdict(self)}

    @classmethod
    def of(cls, vllm_config: Any) -> EngineConfig:
        """The configuration that vLLM's own carries."""
        fields = vllm_config.additional_config[_KEY]
        options = fields["options"]
        return cls(
            **fields
            | {
                "shape": TableShape(**fields["shape"]),
                "options": EngineOptions(**options | {"gpu": GpuOptions(**options["gpu"])}),
                "memory": fields["memory"] and GpuMemoryPlan.of(fields["memory"]),
            }
        )

    @property
    def graph_sizes(self) -> list[int]:
        """Rows of the steps that a GPU runs as one graph, ascending."""
        return backbone_graph_sizes(self.shape.rows, voxgate_kernels=self.options.voxgate_kernels)

    @property
    def step_positions(self) -> int:
        """Most positions of prompts and frames of a GPU's step; what is left of a prompt is computed in the next ones.

        No more than the largest graph holds, where graphs hold prompts: a larger step runs kernel by kernel.
        """
        return self.graph_sizes[-1] if self.options.voxgate_kernels else max(_STEP_POSITIONS, 2 * self.shape.rows)

    def connect_reports(self) -> ReportSender:
        """A sender of reports; every thread that sends needs its own."""
        return ReportSender(self.report_addresses, self.shape.groups)

    def attach_tables(self) -> SlotTables:
        """Maps the shared tables. Raises OSError when the owner is gone."""
        return SlotTables.attach(self.shape, self.tables)
