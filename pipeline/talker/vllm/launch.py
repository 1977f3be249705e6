"""Starts vLLM for a talker: its options, its environment, and the folder that describes the talker to it."""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...checkpoint.weights import check_weights, tensor_shapes
from ...cuda.capability import check_capability, check_fp8_cache
from ...errors import EngineError
from ...gc_freeze import gc_paused
from ...ipc.temporary_folder import process_temporary_folder, tmpdir_for_children
from ..start_progress import StartProgress
from . import compat
from .compile_ahead import compile_ahead
from .config import EngineConfig
from .fork_server import multiprocessing_context, start_fork_server
from .plugin import ARCHITECTURE
from .start_notes import Note, failure_of_start, read_note, read_steps

if TYPE_CHECKING:
    from .compat import AsyncLLM

log = logging.getLogger(__name__)

MEMORY_UTILIZATION = 0.01
"""Share of the GPU's memory that vLLM wants to see free at its start, to no effect besides: this project sets the size
of the cache, from what is free, and other programs may hold the rest."""
DESCRIPTORS_NEEDED = 64
"""File descriptors for the sockets, pipes and polls of vLLM's front, while clients open connections as well."""


def preload_modules(device: str) -> list[str]:
    """Modules that the engine's process imports, by name: the fork server ignores those that do not exist."""
    modules = ["talker.vllm.model"]
    if device != "cpu":
        modules += [f"talker.vllm.{name}" for name in ("backbone", "workers.gpu")]
        modules += [f"talker.cuda.{name}" for name in ("first_frame", "frame_sender", "frame_step", "predictor")]
        # A hash over half a gigabyte of Triton's code, which every process needs before its first kernel.
        modules += ["cuda.kernel_compiler:triton_key"]
    pipeline = __package__.removesuffix(".talker.vllm")
    return [*compat.preload_modules(device), *(f"{pipeline}.{name}" for name in modules)]


def preload_vllm(device: str, threads: int) -> None:
    """Begins the imports of vLLM: here in a thread, and for the engine's process in a fork server."""
    environment = _environment(device, threads)
    _set_environment(environment)
    start_fork_server(preload_modules(device), environment, process_temporary_folder())
    threading.Thread(target=_import_vllm_early, name="vllm-import", daemon=True).start()


def start_vllm(checkpoint: TalkerCheckpoint, config: EngineConfig, progress: StartProgress) -> AsyncLLM:
    """Starts the engine's process; blocks until the model is loaded (tens of seconds).

    Raises EngineError, CheckpointError when weights do not fit the configuration, and what vLLM raises.
    """
    options = config.options
    cpu = options.device == "cpu"
    compat.check(options.device)
    environment = _environment(options.device, options.threads)
    _set_environment(environment)
    if cpu:
        check_host_memory(checkpoint, config, host_memory_bytes())
    else:
        compile_ahead(config)
    progress.enter("importing vLLM")
    _import_vllm()
    from vllm import AsyncEngineArgs

    progress.enter("starting the engine's process")

    # vLLM does not read the folder once the model is loaded; it would remain if this process were killed.
    with tempfile.TemporaryDirectory(prefix="voxgate-engine-") as folder:
        write_engine_folder(checkpoint, config, Path(folder))
        arguments = AsyncEngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            dtype=options.dtype or ("float32" if cpu else "bfloat16"),
            max_model_len=config.shape.max_positions,
            max_num_seqs=config.shape.rows,
            # Equal token ids are not equal content: a token id is a slot.
            enable_prefix_caching=False,
            scheduler_cls=f"{__package__}.scheduler."
            + ("credit.CreditScheduler" if cpu else "just_in_time.CreditAsyncScheduler"),
            worker_cls=f"{__package__}.{'workers.cpu.CpuTalkerWorker' if cpu else 'workers.gpu.TalkerWorker'}",
            distributed_executor_backend=compat.UNIPROC_EXECUTOR if cpu else None,
            additional_config=config.as_additional_config(),
            disable_log_stats=True,
            use_tqdm_on_load=False,
            **(_cpu_arguments(config) if cpu else _gpu_arguments(config)),
        )
        check_descriptor_limit()
        with (
            tmpdir_for_children(process_temporary_folder()),
            compat.started_from(multiprocessing_context(environment)),
            progress.following(partial(read_steps, Path(folder))),
        ):
            try:
                llm = compat.AsyncLLM.from_engine_args(arguments)
            except Exception as error:
                if (reason := failure_of_start(Path(folder), error)) is not None:
                    raise EngineError(reason) from error
                raise
        log_errors_of_vllm()
        for note in (Note.MEMORY, Note.FAST_PATHS, Note.FALLBACK_KERNELS, Note.KERNELS):
            if (text := read_note(Path(folder), note)) is not None:
                log.info("%s", text)
        return llm


def _cpu_arguments(config: EngineConfig) -> dict[str, Any]:
    return {"enforce_eager": True, "kv_cache_memory_bytes": config.options.kv_cache_bytes}


def _gpu_arguments(config: EngineConfig) -> dict[str, Any]:
    """Every decode step as one CUDA graph, without torch.compile, which gains little and starts slowly.

    Raises EngineError for a GPU that is too old, or cannot have the cache that is asked for.
    """
    capability, name = compat.gpu_capability(), compat.gpu_name()
    check_capability(capability, name)
    if config.options.gpu.fp8_cache:
        check_fp8_cache(capability, name)
    half = config.options.dtype in (None, "bfloat16", "float16")
    # On earlier GPUs it is vLLM's own choice.
    asks = config.options.voxgate_kernels and half and capability >= (10, 0)
    assert config.memory is not None, "an engine on a GPU without a plan of its memory"
    return {
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL",
            "cudagraph_capture_sizes": config.graph_sizes,
        },
        "attention_backend": compat.ATTENTION_BACKEND if asks else None,
        "kv_cache_memory_bytes": config.memory.cache,
        "kv_cache_dtype": "fp8" if config.options.gpu.fp8_cache else "auto",
        "gpu_memory_utilization": MEMORY_UTILIZATION,
        "max_num_batched_tokens": config.step_positions,
        # It would import FlashInfer and run the model for seconds, and no step has a kernel of FlashInfer's.
        "enable_flashinfer_autotune": False,
    }


def _import_vllm() -> None:
    # Propagated records of vLLM's loggers would reach the gateway's log as well.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    with gc_paused():
        _ = compat.AsyncLLM


def log_errors_of_vllm() -> None:
    """Makes errors that vLLM logs in this process records of the root logger; to be called behind vLLM's own set-up.

    Its handler needs the process of a record, which the gateway's log leaves out, and would print why it failed.
    """
    vllm = logging.getLogger("vllm")
    vllm.handlers.clear()
    vllm.propagate = True


def _import_vllm_early() -> None:
    # The start of the engine reports what is wrong with vLLM.
    with suppress(EngineError, ImportError):
        _import_vllm()


def _set_environment(environment: dict[str, str]) -> None:
    """For the rest of this process: vLLM reads its settings whenever it needs one."""
    os.environ.update(environment)
    # Compiled kernels are kept for the next start; TMPDIR is a folder that is removed when this process ends.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}")


def _environment(device: str, threads: int) -> dict[str, str]:
    """Settings that vLLM reads in the gateway's process and in the engine's."""
    settings = {
        "VLLM_NO_USAGE_STATS": "1",
        # Their messages are for vLLM's and torch's developers; a failure is also an exception.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCH_LOGS": "-all",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # The folder of its Unix sockets.
        "VLLM_RPC_BASE_PATH": str(process_temporary_folder()),
    }
    if device == "cpu":
        return settings | {
            "VLLM_USE_V2_MODEL_RUNNER": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads),
        }
    return settings | {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_V2_MODEL_RUNNER": "1"}


def write_engine_folder(checkpoint: TalkerCheckpoint, config: EngineConfig, folder: Path) -> None:
    """Describes the talker to vLLM as its backbone, a Qwen3, with links to the checkpoint's weights.

    The talker's M-RoPE equals ordinary rotary embedding (`docs/qwen3_tts.md`, section 5.2). vLLM's vocabulary is the
    slots and end of speech. Raises CheckpointError, naming the tensors, when the weights do not fit the configuration.
    """
    # vLLM would also read other weight files, such as the same tensors in another partition.
    for path in check_weights(checkpoint):
        (folder / path.name).symlink_to(path.resolve())
    size = checkpoint.talker
    described = {
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
        "max_position_embeddings": config.shape.max_positions,
        "vocab_size": config.shape.rows + 1,
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2), encoding="utf-8")


def check_descriptor_limit(needed: int = DESCRIPTORS_NEEDED) -> None:
    """Raises EngineError when fewer file descriptors are left: ZeroMQ would abort the gateway's whole process."""
    with ExitStack() as opened:
        try:
            for _ in range(needed):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise EngineError(f"too many files are open to start the talker's engine: {error.strerror}") from error


CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Memory of the container, in bytes, or "max"."""


def host_memory_bytes(cgroup_limit: Path = CGROUP_LIMIT) -> int:
    """Memory that this machine has free, at most what its container may use at all."""
    free: int = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no container, or no limit
        free = min(free, int(cgroup_limit.read_text(encoding="ascii")))
    return free


def check_host_memory(checkpoint: TalkerCheckpoint, config: EngineConfig, free: int) -> None:
    """Raises EngineError when the engine on a CPU cannot start with `free` bytes; it may need more than is counted."""
    size, cache = checkpoint.talker, config.options.kv_cache_bytes or 0
    # In float32.
    position = 2 * size.layers * size.kv_heads * size.head_dim * 4
    if cache < (least := config.shape.max_positions * position):
        raise EngineError(
            f"a cache of {cache / 1e6:.0f} MB is too small: one utterance can take {least / 1e6:.0f} MB, "
            "set a larger --kv-cache-mb or none"
        )
    weights = 4 * sum(map(math.prod, tensor_shapes(checkpoint).values()))
    if weights + cache > free:
        raise EngineError(
            f"memory is {(weights + cache - free) / 1e9:.1f} GB short: the talker needs {weights / 1e9:.1f} GB for its "
            f"weights and {cache / 1e9:.1f} GB for its cache, and {free / 1e9:.1f} GB are free; "
            "set fewer --slots, or free memory that other programs hold"
        )
