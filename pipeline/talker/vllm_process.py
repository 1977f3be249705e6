"""Starting and stopping vLLM for a talker; the only place that sets its options and the environment it reads."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .buckets import buckets_for
from .wiring import Wiring

MAX_PREFIX_TOKENS = 2048
"""Prompt positions a step takes on a GPU: a few hundred prompts, which come to no more time than a long one."""

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

    from .engine import EngineOptions


def load_engine(folder: Path, wiring: Wiring, options: EngineOptions, max_positions: int) -> AsyncLLM:
    """Start vLLM on a folder of `write_engine_folder`; blocks until the model is loaded (tens of seconds)."""
    cpu = options.device == "cpu"
    _set_environment(options)
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    flavour = "HoldingScheduler" if cpu else "HoldingAsyncScheduler"
    arguments = AsyncEngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        dtype=options.dtype or ("float32" if cpu else "bfloat16"),
        max_model_len=max_positions,
        max_num_seqs=options.slots,
        # Equal token ids are not equal content: every id is a slot.
        enable_prefix_caching=False,
        scheduler_cls=f"{__package__}.scheduler.{flavour}",
        additional_config=wiring.as_config(),
        kv_cache_memory_bytes=options.kv_cache_bytes,
        **({"enforce_eager": True} if cpu else _graphs(options)),
        # By qualified name: the short one is replaced on a CPU by a pair of processes that spin.
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor" if cpu else None,
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )
    return AsyncLLM.from_engine_args(arguments)


def shut_down_engine(llm: AsyncLLM) -> None:
    """Stop the engine process and wait for its end; a second call does nothing."""
    if llm.output_handler is not None:
        # It would report the end we ask for as the engine's death.
        llm.output_handler.get_loop().call_soon_threadsafe(llm.output_handler.cancel)
    llm.shutdown()
    # Its finaliser shuts down again, at a time when the interpreter may have been taken apart already.
    llm.shutdown = lambda *_, **__: None


def _graphs(options: EngineOptions) -> dict[str, Any]:
    """Every decode step as one CUDA graph; without torch.compile, which gains little and starts slowly."""
    return {
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": options.graphs,
            "cudagraph_capture_sizes": buckets_for(options.slots),
        },
        "gpu_memory_utilization": options.gpu_memory,
        "max_num_batched_tokens": max(MAX_PREFIX_TOKENS, 2 * options.slots),
    }


def _set_environment(options: EngineOptions) -> None:
    settings = {
        "VLLM_NO_USAGE_STATS": "1",
        # What these would say is about serving text, or for their own developers; what concerns us is an exception.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCH_LOGS": "-all",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    if options.device == "cpu":
        settings |= {
            "VLLM_USE_V2_MODEL_RUNNER": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(options.threads),
        }
    else:
        settings |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    os.environ.update(settings)
    # Here its records also reach our own log.
    logging.getLogger("vllm").setLevel(logging.ERROR)
