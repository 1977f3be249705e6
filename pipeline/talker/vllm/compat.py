from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ipc.wakeup import WakeupQueue
from .config import EngineConfig

if TYPE_CHECKING:
    pass


def install_wakeup_queue() -> None:
    """Have vLLM's engine wait at a door with a bell from when it begins to take requests; in its process."""
    from vllm.v1.engine import EngineCoreRequestType
    from vllm.v1.engine.core import EngineCoreProc

    begin = EngineCoreProc.process_input_sockets

    def process_input_sockets(core: Any, *args: Any, **kwargs: Any) -> None:
        # Its loop begins after this thread said that it is ready.
        core.input_queue = WakeupQueue(
            EngineConfig.of(core.vllm_config).wakeup_address, (EngineCoreRequestType.WAKEUP, None)
        )
        begin(core, *args, **kwargs)

    # vLLM loads its plugins more than once in a process.
    if begin.__module__ != __name__:
        EngineCoreProc.process_input_sockets = process_input_sockets


def engine_classes() -> tuple[type, type]:
    """vLLM's classes that take requests in and that run steps, in the engine's process; for measurements."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    return EngineCore, UniProcExecutor
