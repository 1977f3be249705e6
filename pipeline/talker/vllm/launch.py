"""Starting and stopping vLLM for a talker; the only place that sets its options and the environment it reads."""
# TODO-DOC The folder vLLM is started on: the backbone's configuration beside links to the checkpoint's own weight
# TODO-DOC files.
# TODO-DOC Whether an engine can be started with the files that this process may still open.

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint import TalkerCheckpoint, load_checkpoint
from ...checkpoint_weights import check_weights
from ...errors import EngineError
from .config import EngineConfig
from .fork_server import multiprocessing_context, start_fork_server
from .plugin import ARCHITECTURE
from .temporary_folder import scratch, tmpdir_for_children

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

    from .config import EngineOptions


MAX_PREFIX_TOKENS = 2048
"""Prompt positions a step takes on a GPU: a few hundred prompts, which come to no more time than a long one."""

CACHED_POSITIONS = 768
"""Positions for which every slot finds room in a GPU's cache at once, some fifty seconds of speech.

More of one is as good while others have less; when there is no room at all, vLLM makes the last to come wait.
"""


def preload_vllm(device: str, threads: int) -> None:
    """Have vLLM imported by a thread here, and what the engine's process needs by one that it is forked from."""
    workers = ["cpu_worker"] if device == "cpu" else ["gpu_worker", "gpu.model_runner"]
    ours = ["vllm.model"]
    if device != "cpu":
        ours += ["vllm.backbone", "cuda.frame_step", "cuda.predictor"]
    talker = __package__.rpartition(".")[0]
    modules = [*(f"vllm.v1.worker.{name}" for name in workers), *(f"{talker}.{name}" for name in ours)]
    environment = _environment(device, threads)
    _set(environment)
    start_fork_server(["vllm.v1.engine.core", *modules], environment, scratch())
    threading.Thread(target=_import_vllm, name="vLLM's import", daemon=True).start()


def load_engine(folder: Path, wiring: EngineConfig, options: EngineOptions, max_positions: int) -> AsyncLLM:
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
    utils.get_mp_context = partial(multiprocessing_context, environment)
    flavour = "CreditScheduler" if cpu else "CreditAsyncScheduler"
    arguments = AsyncEngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        dtype=options.dtype or ("float32" if cpu else "bfloat16"),
        max_model_len=max_positions,
        max_num_seqs=wiring.shape.rows,
        # Equal token ids are not equal content: every id is a slot.
        enable_prefix_caching=False,
        scheduler_cls=f"{__package__}.scheduler.{flavour}",
        additional_config=wiring.as_additional_config(),
        **(
            {"enforce_eager": True, "kv_cache_memory_bytes": options.kv_cache_bytes}
            if cpu
            else _graphs(wiring, wiring.shape.rows, _gpu_memory(wiring, options, max_positions))
        ),
        worker_cls=f"{__package__}.worker.TalkerWorker" if options.voxgate_kernels else "auto",
        # By qualified name: the short one is replaced on a CPU by a pair of processes that spin.
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor" if cpu else None,
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )
    check_descriptor_limit()
    with tmpdir_for_children(scratch()):
        return AsyncLLM.from_engine_args(arguments)


def _graphs(wiring: EngineConfig, rows: int, memory: GpuMemoryPlan) -> dict[str, Any]:
    """Every decode step as one CUDA graph; without torch.compile, which gains little and starts slowly."""
    return {
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL",
            "cudagraph_capture_sizes": wiring.graph_sizes,
        },
        "kv_cache_memory_bytes": memory.cache_bytes,
        "gpu_memory_utilization": memory.share,
        "max_num_batched_tokens": max(MAX_PREFIX_TOKENS, 2 * rows),
    }


@dataclass(frozen=True, slots=True)
class GpuMemoryPlan:
    """A GPU's memory for the talker: the cache's, None for what is left of it, and its share of the device's."""

    cache_bytes: int | None
    share: float


def plan_gpu_memory(total: int, most: float, weights: int, cache: int, copies: int = 0) -> GpuMemoryPlan:
    """`cache` bytes where they fit into the share `most` of `total`, beside twice the `weights` and what is a copy of
    some of them; else what is left.

    A share no larger than what is needed lets another replica start beside this one.
    """
    share = (cache + 2 * weights + copies) / total
    return GpuMemoryPlan(cache, share) if share <= most else GpuMemoryPlan(None, most)


def _gpu_memory(wiring: EngineConfig, options: EngineOptions, max_positions: int) -> GpuMemoryPlan:
    from vllm.platforms import current_platform

    from ..cuda.streamed_kernels import packed_bytes

    checkpoint = load_checkpoint(Path(wiring.checkpoint))
    weights = sum(file.stat().st_size for file in checkpoint.folder.rglob("*.safetensors"))
    total = int(current_platform.get_device_total_memory())
    size = checkpoint.talker
    copies = (
        packed_bytes(size) if options.voxgate_kernels and options.gpu.streamed_layers and options.dtype is None else 0
    )
    if options.kv_cache_bytes is not None:
        share = plan_gpu_memory(total, 1.0, weights, options.kv_cache_bytes, copies).share
        return GpuMemoryPlan(options.kv_cache_bytes, min(options.gpu.memory_share, share))
    per_position = 2 * size.layers * size.kv_heads * size.head_dim * (4 if options.dtype == "float32" else 2)
    positions = max(wiring.shape.slots * min(CACHED_POSITIONS, max_positions), 2 * max_positions)
    return plan_gpu_memory(total, options.gpu.memory_share, weights, per_position * positions, copies)


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


def write_engine_folder(checkpoint: TalkerCheckpoint, slots: int, max_positions: int, folder: Path) -> None:
    """Describe the talker as what its backbone is, a Qwen3 (section C: its M-RoPE equals ordinary rotary embedding).

    vLLM's vocabulary is the slots and end of speech. Raises CheckpointError, naming the tensors, when the weights are
    not those of the checkpoint's configuration.
    """
    # Other files, such as a second copy in other pieces, are kept from vLLM, which would read them too.
    for path in check_weights(checkpoint):
        (folder / path.name).symlink_to(path.resolve())
    size = checkpoint.talker
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3",
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "rms_norm_eps": size.norm_eps,
        "rope_theta": size.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": size.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "max_position_embeddings": max_positions,
        "vocab_size": slots + 1,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


DESCRIPTORS_NEEDED = 64
"""Sockets, pipes and polls of vLLM's front, some of which clients are opening at the same time."""


def check_descriptor_limit(needed: int = DESCRIPTORS_NEEDED) -> None:
    """Raises EngineError where fewer are left: ZeroMQ would end this process, and everybody's sockets with it."""
    with ExitStack() as taken:
        try:
            for _ in range(needed):
                taken.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise EngineError(f"too many files are open to start the talker's engine: {error.strerror}") from error
