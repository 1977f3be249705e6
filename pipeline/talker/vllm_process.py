"""Starting and stopping vLLM for a talker; the only place that sets its options and the environment it reads."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint import load_checkpoint
from .buckets import graph_sizes
from .descriptors import check_descriptors
from .forerunner import engine_context, run_ahead
from .scratch import scratch, temporary_folder
from .wiring import Wiring

MAX_PREFIX_TOKENS = 2048
"""Prompt positions a step takes on a GPU: a few hundred prompts, which come to no more time than a long one."""

CACHED_POSITIONS = 768
"""Positions for which every slot finds room in a GPU's cache at once, some fifty seconds of speech.

More of one is as good while others have less; when there is no room at all, vLLM makes the last to come wait.
"""

if TYPE_CHECKING:
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.async_llm import AsyncLLM

    from .engine_options import EngineOptions


def import_ahead(device: str, threads: int) -> None:
    """Have vLLM imported by a thread here, and what the engine's process needs by one that it is forked from."""
    workers = ["cpu_worker"] if device == "cpu" else ["gpu_worker", "gpu.model_runner"]
    ours = ["model"] if device == "cpu" else ["model", "gpu_backbone", "gpu_frame_step", "gpu_predictor", "gpu_step"]
    modules = [*(f"vllm.v1.worker.{name}" for name in workers), *(f"{__package__}.{name}" for name in ours)]
    environment = _environment(device, threads)
    _set(environment)
    run_ahead(["vllm.v1.engine.core", *modules], environment, scratch())
    threading.Thread(target=_import_vllm, name="vLLM's import", daemon=True).start()


def load_engine(folder: Path, wiring: Wiring, options: EngineOptions, max_positions: int) -> AsyncLLM:
    """Start vLLM on a folder of `write_engine_folder`; blocks until the model is loaded (tens of seconds).

    Raises EngineError, and what vLLM does.
    """
    cpu = options.device == "cpu"
    environment = _environment(options.device, options.threads)
    _set(environment)
    _import_vllm()
    from vllm import AsyncEngineArgs
    from vllm.v1.engine import utils
    from vllm.v1.engine.async_llm import AsyncLLM

    # By its own settings it would be an interpreter of its own.
    utils.get_mp_context = partial(engine_context, environment)
    flavour = "HoldingScheduler" if cpu else "HoldingAsyncScheduler"
    arguments = AsyncEngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        dtype=options.dtype or ("float32" if cpu else "bfloat16"),
        max_model_len=max_positions,
        max_num_seqs=wiring.shape.rows,
        # Equal token ids are not equal content: every id is a slot.
        enable_prefix_caching=False,
        scheduler_cls=f"{__package__}.scheduler.{flavour}",
        additional_config=wiring.as_config(),
        **(
            {"enforce_eager": True, "kv_cache_memory_bytes": options.kv_cache_bytes}
            if cpu
            else _graphs(options, wiring.shape.rows, _gpu_memory(wiring, options, max_positions))
        ),
        worker_cls=f"{__package__}.vllm_worker.TalkerWorker" if wiring.own_kernels else "auto",
        # By qualified name: the short one is replaced on a CPU by a pair of processes that spin.
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor" if cpu else None,
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )
    check_descriptors()
    with temporary_folder(scratch()):
        return AsyncLLM.from_engine_args(arguments)


def shut_down_engine(llm: AsyncLLM) -> None:
    """Stop the engine process and wait for its end; a second call does nothing."""
    if llm.output_handler is not None:
        # It would report the end we ask for as the engine's death.
        llm.output_handler.get_loop().call_soon_threadsafe(llm.output_handler.cancel)
    llm.shutdown()
    # Its finaliser shuts down again, at a time when the interpreter may have been taken apart already.
    llm.shutdown = lambda *_, **__: None


class Requests:
    """Makes requests as vLLM's own front does, without its looking through each anew: they differ in three fields.

    Until `limit` tokens were drawn, or `end_token` was.
    """

    def __init__(self, template: EngineCoreRequest) -> None:
        self._template = template

    @classmethod
    async def of(cls, llm: AsyncLLM, limit: int, end_token: int) -> Requests:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=limit,
            stop_token_ids=[end_token],
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        tasks = await llm.get_supported_tasks()
        return cls(llm.input_processor.process_inputs("", {"prompt_token_ids": [0]}, params, supported_tasks=tasks))

    def make(self, name: str, slot: int, prompt_len: int) -> EngineCoreRequest:
        """A generation's, in `slot`."""
        request = copy(self._template)
        request.request_id, request.prompt_token_ids, request.arrival_time = name, [slot] * prompt_len, time.time()
        return request


def step_owners() -> tuple[type, type]:
    """vLLM's classes that take requests in and that run steps, in the engine's process; for measurements."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    return EngineCore, UniProcExecutor


def _graphs(options: EngineOptions, rows: int, memory: Memory) -> dict[str, Any]:
    """Every decode step as one CUDA graph; without torch.compile, which gains little and starts slowly."""
    return {
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL",
            "cudagraph_capture_sizes": graph_sizes(rows, own=options.own_kernels),
        },
        "kv_cache_memory_bytes": memory.cache_bytes,
        "gpu_memory_utilization": memory.share,
        "max_num_batched_tokens": max(MAX_PREFIX_TOKENS, 2 * rows),
    }


@dataclass(frozen=True, slots=True)
class Memory:
    """A GPU's memory for the talker: the cache's, None for what is left of it, and its share of the device's."""

    cache_bytes: int | None
    share: float


def plan_memory(total: int, most: float, weights: int, cache: int, copies: int = 0) -> Memory:
    """`cache` bytes where they fit into the share `most` of `total`, beside twice the `weights` and what is a copy of
    some of them; else what is left.

    A share no larger than what is needed lets another replica start beside this one.
    """
    share = (cache + 2 * weights + copies) / total
    return Memory(cache, share) if share <= most else Memory(None, most)


def _gpu_memory(wiring: Wiring, options: EngineOptions, max_positions: int) -> Memory:
    from vllm.platforms import current_platform

    from .gpu_few_rows import packed_bytes

    checkpoint = load_checkpoint(Path(wiring.checkpoint))
    weights = sum(file.stat().st_size for file in checkpoint.folder.rglob("*.safetensors"))
    total = int(current_platform.get_device_total_memory())
    size = checkpoint.talker
    copies = packed_bytes(size) if options.own_kernels and options.streamed_layers and options.dtype is None else 0
    if options.kv_cache_bytes is not None:
        share = plan_memory(total, 1.0, weights, options.kv_cache_bytes, copies).share
        return Memory(options.kv_cache_bytes, min(options.gpu_memory, share))
    per_position = 2 * size.layers * size.kv_heads * size.head_dim * (4 if options.dtype == "float32" else 2)
    positions = max(wiring.shape.slots * min(CACHED_POSITIONS, max_positions), 2 * max_positions)
    return plan_memory(total, options.gpu_memory, weights, per_position * positions, copies)


def _set(environment: dict[str, str]) -> None:
    os.environ.update(environment)
    # What was compiled is kept for the next start; by default it would lie among what is not.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}")


def _import_vllm() -> None:
    # Here its records also reach our own log.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    from vllm.v1.engine import async_llm  # noqa: F401  # what takes long is there from now on


def _environment(device: str, threads: int) -> dict[str, str]:
    """What vLLM reads, in the gateway's process and in the engine's."""
    settings = {
        "VLLM_NO_USAGE_STATS": "1",
        # What these would say is about serving text, or for their own developers; what concerns us is an exception.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCH_LOGS": "-all",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # Its sockets' files.
        "VLLM_RPC_BASE_PATH": str(scratch()),
    }
    if device == "cpu":
        return settings | {
            "VLLM_USE_V2_MODEL_RUNNER": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads),
        }
    return settings | {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_V2_MODEL_RUNNER": "1"}
