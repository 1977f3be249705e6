"""Every internal name of vLLM that this project imports, overrides or replaces; no other file imports one.

vLLM declares few names stable, so each use of an internal one is listed here by group: `check` looks all of them up in
vLLM's source before an engine starts, and a missing one ends the start with one sentence instead of a traceback out of
another process. Classes and functions are exported lazily under vLLM's own names (`from .compat import Scheduler`):
those of the GPU exist in GPU builds only. Below them stand the replacements and the accessors.

To support another version of vLLM: run `tests/pipeline/talker` (and `scripts/test-gpu` on a GPU) with it, correct the
lists, and extend `proven.py`.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import EngineError
from ...ipc.wakeup import WakeupQueue
from .proven import RequiredNames, SourceTree, installed_source, refusal, unsupported

if TYPE_CHECKING:
    from torch import Tensor
    from vllm.config.compilation import CUDAGraphMode as CUDAGraphMode
    from vllm.model_executor.models.qwen3 import Qwen3Model as Qwen3Model
    from vllm.model_executor.models.utils import maybe_prefix as maybe_prefix
    from vllm.v1.attention.backends.utils import PAD_SLOT_ID as PAD_SLOT_ID
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler as Scheduler
    from vllm.v1.engine import EngineCoreRequest as EngineCoreRequest
    from vllm.v1.engine.async_llm import AsyncLLM as AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError as EngineDeadError
    from vllm.v1.request import Request as Request
    from vllm.v1.worker.cpu_worker import CPUWorker as CPUWorker
    from vllm.v1.worker.gpu.buffer_utils import UvaBufferPool as UvaBufferPool
    from vllm.v1.worker.gpu.input_batch import InputBatch as InputBatch
    from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected as get_num_sampled_and_rejected
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState as DefaultModelState
    from vllm.v1.worker.gpu.sample.output import SamplerOutput as SamplerOutput
    from vllm.v1.worker.gpu.warmup import warmup_kernels as warmup_kernels
    from vllm.v1.worker.gpu_worker import Worker as Worker

_EXPORTS = {
    "AsyncLLM": "vllm.v1.engine.async_llm:AsyncLLM",
    "AsyncScheduler": "vllm.v1.core.sched.async_scheduler:AsyncScheduler",
    "CPUWorker": "vllm.v1.worker.cpu_worker:CPUWorker",
    "CUDAGraphMode": "vllm.config.compilation:CUDAGraphMode",
    "DefaultModelState": "vllm.v1.worker.gpu.model_states.default:DefaultModelState",
    "EngineDeadError": "vllm.v1.engine.exceptions:EngineDeadError",
    "InputBatch": "vllm.v1.worker.gpu.input_batch:InputBatch",
    "PAD_SLOT_ID": "vllm.v1.attention.backends.utils:PAD_SLOT_ID",
    "Qwen3Model": "vllm.model_executor.models.qwen3:Qwen3Model",
    "SamplerOutput": "vllm.v1.worker.gpu.sample.output:SamplerOutput",
    "Scheduler": "vllm.v1.core.sched.scheduler:Scheduler",
    "UvaBufferPool": "vllm.v1.worker.gpu.buffer_utils:UvaBufferPool",
    "Worker": "vllm.v1.worker.gpu_worker:Worker",
    "get_num_sampled_and_rejected": "vllm.v1.worker.gpu.input_batch:get_num_sampled_and_rejected",
    "maybe_prefix": "vllm.model_executor.models.utils:maybe_prefix",
    "warmup_kernels": "vllm.v1.worker.gpu.warmup:warmup_kernels",
}
"""What other files import from here at run time; the block above says the same to type checkers."""

ATTENTION_BACKEND = "FLASH_ATTN"
"""The backend whose cache `paged_attention` reads. vLLM would choose another one on Blackwell."""

UNIPROC_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""For `distributed_executor_backend`: the short name starts a pair of busy-waiting processes on a CPU."""

_NAMES: Mapping[str, Sequence[RequiredNames]] = {
    # The process that starts the engine.
    "front": (
        RequiredNames(
            "vllm.engine.arg_utils:AsyncEngineArgs",
            "additional_config compilation_config distributed_executor_backend enable_prefix_caching "
            "gpu_memory_utilization kv_cache_memory_bytes max_num_batched_tokens max_num_seqs scheduler_cls "
            "skip_tokenizer_init use_tqdm_on_load worker_cls",
        ),
        RequiredNames(
            "vllm.v1.engine.async_llm:AsyncLLM",
            "collective_rpc engine_core errored from_engine_args generate get_supported_tasks input_processor "
            "output_handler shutdown",
        ),
        RequiredNames("vllm.v1.engine.core_client:AsyncMPClient", "abort_requests_async"),
        RequiredNames("vllm.v1.engine.exceptions:EngineDeadError"),
        RequiredNames("vllm.v1.engine.input_processor:InputProcessor", "process_inputs"),
        RequiredNames("vllm.v1.engine.utils", "get_mp_context"),
        RequiredNames("vllm.v1.engine:EngineCoreRequest", "arrival_time prompt_token_ids request_id sampling_params"),
        RequiredNames("vllm.v1.executor.uniproc_executor:UniProcExecutor"),
        RequiredNames("vllm.sampling_params:RequestOutputKind", "FINAL_ONLY"),
    ),
    # The engine's loop, whose input queue and clock are replaced, and its scheduler, which is subclassed.
    "engine": (
        RequiredNames("vllm.v1.engine.core", "time"),
        RequiredNames("vllm.v1.engine.core:EngineCoreProc", "input_queue process_input_sockets scheduler vllm_config"),
        RequiredNames("vllm.v1.engine:EngineCoreRequestType", "WAKEUP"),
        RequiredNames("vllm.v1.core.sched.async_scheduler:AsyncScheduler"),
        RequiredNames(
            "vllm.v1.core.sched.scheduler:Scheduler",
            "_preempt_request add_request block_size finish_requests get_grammar_bitmask get_num_unfinished_requests "
            "has_finished_requests has_requests kv_cache_manager requests running schedule update_from_output waiting",
        ),
        RequiredNames("vllm.v1.core.block_pool:BlockPool", "get_num_free_blocks"),
        RequiredNames("vllm.v1.core.kv_cache_manager:KVCacheManager", "block_pool"),
        RequiredNames(
            "vllm.v1.core.sched.request_queue:FCFSRequestQueue", "peek_request prepend_request remove_requests"
        ),
        RequiredNames(
            "vllm.v1.core.sched.output:SchedulerOutput",
            "num_scheduled_tokens preempted_req_ids total_num_scheduled_tokens",
        ),
        RequiredNames("vllm.v1.engine:EngineCoreOutput", "finish_reason new_token_ids request_id"),
        RequiredNames("vllm.v1.engine:EngineCoreOutputs", "finished_requests outputs scheduler_stats"),
        RequiredNames(
            "vllm.v1.request:Request",
            "_all_token_ids _output_token_ids num_computed_tokens num_output_tokens num_preemptions num_tokens "
            "prompt_token_ids request_id",
        ),
    ),
    "model": (
        RequiredNames("vllm.model_executor.models.qwen3:Qwen3Model", "load_weights make_empty_intermediate_tensors"),
        RequiredNames("vllm.model_executor.models.utils", "maybe_prefix"),
    ),
    # `talker/cpu/vllm_ops.py` replaces these layers.
    "cpu": (
        RequiredNames(
            "vllm.v1.worker.cpu_worker:CPUWorker", "determine_available_memory init_device load_model vllm_config"
        ),
        RequiredNames("vllm.model_executor.layers.activation:SiluAndMul", "register_oot"),
        RequiredNames("vllm.model_executor.layers.layernorm:RMSNorm", "register_oot variance_epsilon weight"),
        RequiredNames("vllm.platforms.interface:Platform", "import_kernels is_cpu"),
    ),
    # The worker and its model state are subclassed; the sampler and the attention layers are replaced.
    "gpu": (
        RequiredNames("vllm.config.compilation:CUDAGraphMode", "FULL"),
        RequiredNames("vllm.engine.arg_utils:AsyncEngineArgs", "attention_backend enable_flashinfer_autotune"),
        RequiredNames("vllm.forward_context", "get_forward_context"),
        RequiredNames("vllm.forward_context:ForwardContext", "attn_metadata"),
        RequiredNames("vllm.model_executor.models.qwen2:Qwen2MLP", "down_proj gate_up_proj"),
        RequiredNames(
            "vllm.model_executor.models.qwen3:Qwen3Attention", "attn k_norm o_proj q_norm qkv_proj rotary_emb"
        ),
        RequiredNames(
            "vllm.model_executor.models.qwen3:Qwen3DecoderLayer",
            "input_layernorm mlp post_attention_layernorm self_attn",
        ),
        RequiredNames("vllm.platforms.interface:Platform", "get_device_capability get_device_name is_cpu"),
        RequiredNames(
            "vllm.v1.core.sched.output:NewRequestData",
            "block_ids lora_request mm_features num_computed_tokens pooling_params prefill_token_ids prompt_token_ids "
            "req_id sampling_params",
        ),
        RequiredNames(
            "vllm.v1.core.sched.output:SchedulerOutput",
            "finished_req_ids make_empty num_scheduled_tokens scheduled_new_reqs total_num_scheduled_tokens",
        ),
        RequiredNames(
            "vllm.v1.worker.gpu_worker:Worker",
            "cache_config compile_or_warm_up_model determine_available_memory execute_model init_device "
            "initialize_from_config load_model model_runner sample_tokens vllm_config",
        ),
        RequiredNames("vllm.v1.worker.gpu.input_batch", "get_num_sampled_and_rejected"),
        RequiredNames(
            "vllm.v1.worker.gpu.input_batch:InputBatch", "cu_num_logits idx_mapping logits_indices num_reqs seq_lens"
        ),
        RequiredNames("vllm.v1.worker.gpu.model_states.default:DefaultModelState", "custom_sampler model prepare_attn"),
        RequiredNames("vllm.v1.worker.gpu.model_runner:GPUModelRunner", "block_tables max_num_reqs model model_state"),
        RequiredNames(
            "vllm.v1.worker.gpu.sample.output:SamplerOutput",
            "logprobs_tensors num_nans num_rejected num_sampled sampled_token_ids",
        ),
        RequiredNames("vllm.v1.worker.gpu.states:RequestState", "device max_num_reqs prefill_len"),
        # `scheduler/frame_rows.py` does for rows of frames what the scheduler would do.
        RequiredNames(
            "vllm.v1.core.sched.scheduler:Scheduler",
            "block_size kv_cache_manager max_model_len max_num_scheduled_tokens requests running schedule "
            "update_from_output",
        ),
        RequiredNames("vllm.v1.core.kv_cache_manager:KVCacheBlocks", "get_block_ids"),
        # `scheduler/shared_prefixes.py` gives requests pages that others have computed.
        RequiredNames("vllm.v1.core.block_pool:BlockPool", "free_blocks touch"),
        RequiredNames(
            "vllm.v1.core.kv_cache_manager:KVCacheManager",
            "allocate_slots coordinator create_kv_cache_blocks get_computed_blocks",
        ),
        RequiredNames("vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator", "single_type_managers"),
        RequiredNames(
            "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager",
            "add_local_computed_blocks enable_caching req_to_blocks",
        ),
        RequiredNames(
            "vllm.v1.core.sched.output:CachedRequestData",
            "new_block_ids num_computed_tokens num_output_tokens req_ids",
        ),
        RequiredNames(
            "vllm.v1.core.sched.output:SchedulerOutput",
            "num_scheduled_tokens scheduled_cached_reqs scheduled_new_reqs total_num_scheduled_tokens",
        ),
        RequiredNames("vllm.v1.outputs:ModelRunnerOutput", "req_id_to_index sampled_token_ids"),
        RequiredNames(
            "vllm.v1.request:Request",
            "append_output_token_ids is_prefill_chunk max_tokens num_computed_tokens num_in_flight_tokens "
            "num_output_placeholders num_output_tokens num_prompt_tokens num_stale_output_tokens num_tokens "
            "prefill_stats prompt_token_ids request_id",
        ),
    ),
    # Optional: without these, or with other fields of an input batch, vLLM prepares every step itself.
    "fast inputs": (
        RequiredNames("vllm.v1.attention.backends.utils", "PAD_SLOT_ID"),
        RequiredNames(
            "vllm.v1.worker.gpu.block_table:BlockTables",
            "block_sizes block_tables input_block_tables num_blocks num_kv_cache_groups slot_mappings",
        ),
        RequiredNames("vllm.v1.worker.gpu.buffer_utils:UvaBufferPool", "copy_to_uva"),
        RequiredNames(
            "vllm.v1.worker.gpu.input_batch:InputBuffers", "input_ids is_padding positions query_start_loc seq_lens"
        ),
        RequiredNames(
            "vllm.v1.worker.gpu.model_runner:GPUModelRunner",
            "block_tables device fast_prefill input_buffers kernel_block_sizes max_num_reqs model_config pcp_manager "
            "prepare_attn prepare_inputs req_states use_dcp use_pp",
        ),
        RequiredNames(
            "vllm.v1.worker.gpu.model_runner:BatchReqState",
            "decode_graph_eligible has_prefill idx_mapping_np is_prefilling_np num_computed_prefill_tokens_np "
            "num_draft_tokens_np num_tokens prefill_len_np req_ids",
        ),
        RequiredNames(
            "vllm.v1.worker.gpu.states:RequestState",
            "last_sampled_tokens num_computed_tokens num_computed_tokens_np",
        ),
        RequiredNames("vllm.v1.worker.gpu.warmup", "warmup_kernels"),
    ),
}

_INPUT_BATCH = RequiredNames(
    "vllm.v1.worker.gpu.input_batch:InputBatch",
    "req_ids num_reqs num_reqs_after_padding idx_mapping idx_mapping_np expanded_idx_mapping expanded_local_pos "
    "num_scheduled_tokens num_tokens num_tokens_after_padding num_draft_tokens num_draft_tokens_per_req "
    "num_admitted_draft_tokens query_start_loc query_start_loc_np seq_lens seq_lens_cpu_upper_bound "
    "dcp_local_seq_lens num_computed_tokens_np prefill_len_np num_computed_prefill_tokens_np is_prefilling_np "
    "has_prefill prefill_runs_as_decode_np decode_graph_eligible max_seq_len_np max_query_len input_ids positions "
    "is_padding logits_indices cu_num_logits cu_num_logits_np has_structured_output_reqs prompt_lens fast_prefill pcp",
)
INPUT_BATCH_FIELDS = frozenset(_INPUT_BATCH.names.split())
"""Fields of the input batch that fast input preparation fills; those of vLLM 0.33.0."""

T = TypeVar("T")


def check(device: str, source: Path | None = None) -> None:
    """Raises EngineError when the installed vLLM is not proven on `device`, or lacks a name that an engine there needs.

    `source`: vLLM's folder, by default the installed one.
    """
    if source is None and (reason := refusal(device)):
        raise EngineError(reason)
    if missing := missing_names(("front", "engine", "model", "cpu" if device == "cpu" else "gpu"), source):
        raise unsupported(missing)


def missing_names(groups: Sequence[str], source: Path | None = None) -> list[str]:
    """Names of these groups that vLLM's source does not define. Raises EngineError when vLLM is not installed."""
    tree = SourceTree(source or installed_source())
    return [name for group in groups for owner in _NAMES[group] for name in owner.all() if not tree.defines(name)]


def __getattr__(name: str) -> Any:
    """The name of vLLM's. Raises EngineError when the installed version lacks it."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _EXPORTS[name].partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (AttributeError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("vllm"):
            raise  # A module that vLLM itself needs.
        raise unsupported([_EXPORTS[name]]) from error
    globals()[name] = found
    return found


def preload_modules(device: str) -> list[str]:
    """Modules of vLLM that an engine's process needs and that take long to import."""
    workers = ["cpu_worker"] if device == "cpu" else ["gpu_worker", "gpu.model_runner"]
    return ["vllm.v1.engine.core", *(f"vllm.v1.worker.{name}" for name in workers)]


# The process that starts the engine


@contextmanager
def started_from(context: BaseContext) -> Iterator[None]:
    """Engines started in this block take their process from `context`; by vLLM's settings it would be spawned."""
    from vllm.v1.engine import utils

    usual = utils.get_mp_context
    utils.get_mp_context = lambda: context
    try:
        yield
    finally:
        utils.get_mp_context = usual


async def request_template(llm: AsyncLLM, max_tokens: int, end_token: int) -> EngineCoreRequest:
    """A request as vLLM's front makes it, which ends after `max_tokens` tokens or with `end_token`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        temperature=0.0,
        max_tokens=max_tokens,
        stop_token_ids=[end_token],
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    tasks = await llm.get_supported_tasks()
    return llm.input_processor.process_inputs("", {"prompt_token_ids": [0]}, params, supported_tasks=tasks)


def copy_request(template: EngineCoreRequest, name: str, token_ids: list[int], arrival_s: float) -> EngineCoreRequest:
    """The template with the three fields that differ between requests; spares vLLM's validation of each."""
    request = copy(template)
    request.request_id, request.prompt_token_ids, request.arrival_time = name, token_ids, arrival_s
    return request


async def send_to_scheduler(llm: AsyncLLM, name: str) -> None:
    """Has `Scheduler.finish_requests` called with a name that is no request's."""
    await llm.engine_core.abort_requests_async([name])


async def call_in_worker(llm: AsyncLLM, function: Callable[[Any], T]) -> T:
    """Runs `function` in the engine's process with vLLM's worker; needs VLLM_ALLOW_INSECURE_SERIALIZATION=1."""
    (answer,) = await llm.collective_rpc(cast(str, function))  # its annotation names strings only
    return cast(T, answer)


def shut_down(llm: AsyncLLM) -> None:
    """Stops the engine's process and waits for its end; a second call does nothing."""
    if llm.output_handler is not None:
        # It would report the requested end as the engine's death.
        llm.output_handler.get_loop().call_soon_threadsafe(llm.output_handler.cancel)
    llm.shutdown()
    # vLLM's finaliser shuts down again, when the interpreter may have been torn down already.
    llm.shutdown = lambda *_, **__: None


def gpu_capability() -> tuple[int, int]:
    """CUDA compute capability of the GPU; creates no CUDA context."""
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability()
    return capability.major, capability.minor


def gpu_name() -> str:
    """The name of the GPU's model."""
    from vllm.platforms import current_platform

    return str(current_platform.get_device_name())


# The engine's process


def install_wakeup_queue(address_of: Callable[[Any], str]) -> None:
    """Replaces the input queue of vLLM's engine loop by a `WakeupQueue`, in the engine's process.

    `address_of` returns the queue's address for vLLM's configuration. The scheduler gets the queue's `wait` as
    `wait_for_notification`.
    """
    from vllm.v1.engine import EngineCoreRequestType
    from vllm.v1.engine.core import EngineCoreProc

    begin = EngineCoreProc.process_input_sockets

    def process_input_sockets(core: Any, *args: Any, **kwargs: Any) -> None:
        # The engine's loop begins only after this thread has reported that it is ready.
        wakeup_item = (EngineCoreRequestType.WAKEUP, None)
        inputs = WakeupQueue(address_of(core.vllm_config), wakeup_item, lambda: core.scheduler.wake_s)
        core.input_queue, core.scheduler.wait_for_notification = inputs, inputs.wait
        begin(core, *args, **kwargs)

    # vLLM loads its plugins more than once in a process.
    if begin.__module__ != __name__:
        EngineCoreProc.process_input_sockets = process_input_sockets


class _LoopTime:
    """Python's `time`, whose `sleep` returns at once, except when called twice within that time."""

    def __init__(self) -> None:
        self._asked_s = -math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        if time.monotonic() - self._asked_s < seconds:
            time.sleep(seconds)
        self._asked_s = time.monotonic()


def spare_loop_sleep() -> None:
    """Has vLLM's engine loop not sleep behind a step, in the engine's process.

    It sleeps for a millisecond where a step ended, none was scheduled behind it, and one is due now.
    """
    from vllm.v1.engine import core

    core.time = _LoopTime()


def set_token_ids(request: Request, token_id: int) -> None:
    """Replaces every token of a running request, prompt and output, by `token_id`."""
    for tokens in (request.prompt_token_ids, request._all_token_ids, request._output_token_ids):
        tokens[:] = [token_id] * len(tokens)


def free_pages(scheduler: Scheduler) -> int:
    """Pages of the cache that no request holds."""
    return int(scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def allocate_page(scheduler: Scheduler, request: Request) -> tuple[list[int], ...]:
    """Gives a running request the page of its next position; a page must be free. Returns it as vLLM's worker reads
    it."""
    pages = scheduler.kv_cache_manager.allocate_slots(request, 1)
    assert pages is not None, "no page of the cache is free"
    added: tuple[list[int], ...] = pages.get_block_ids(allow_none=True)
    return added


def offer_pages(scheduler: Scheduler, find: Callable[[Request], Sequence[Any]]) -> None:
    """Has requests that begin take over the pages that `find` returns, as if vLLM's own cache of prefixes had them."""
    manager = scheduler.kv_cache_manager
    (group,) = manager.coordinator.single_type_managers
    add = group.add_local_computed_blocks

    def get_computed_blocks(request: Request, *_: Any) -> tuple[Any, int, int]:
        found = list(find(request))
        return manager.create_kv_cache_blocks((found,)), len(found) * scheduler.block_size, 0

    def add_local_computed_blocks(*args: Any, **kwargs: Any) -> None:
        # Without its cache of prefixes vLLM accepts no such pages; with it, it would keep a hash of every page.
        group.enable_caching = True
        try:
            add(*args, **kwargs)
        finally:
            group.enable_caching = False

    manager.get_computed_blocks = get_computed_blocks
    group.add_local_computed_blocks = add_local_computed_blocks


def pages_of(scheduler: Scheduler, request: Request) -> Sequence[Any]:
    """The pages of a request, in order."""
    (group,) = scheduler.kv_cache_manager.coordinator.single_type_managers
    return tuple(group.req_to_blocks[request.request_id])


def hold_pages(scheduler: Scheduler, pages: Sequence[Any]) -> None:
    """Keeps pages until `drop_pages`, also when no request has them any more."""
    scheduler.kv_cache_manager.block_pool.touch(pages)


def drop_pages(scheduler: Scheduler, pages: Sequence[Any]) -> None:
    """Ends `hold_pages`."""
    scheduler.kv_cache_manager.block_pool.free_blocks(reversed(pages))


def preempt(scheduler: Scheduler, request: Request, now_s: float) -> None:
    """Takes a request's pages away and puts it first in the queue; it must not be in `running` any more."""
    scheduler._preempt_request(request, now_s)


def is_cpu() -> bool:
    """Whether this is vLLM's CPU build."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """vLLM's attention metadata of the step under way, as device tensors."""

    slot_mapping: Tensor
    block_table: Tensor
    query_start_loc: Tensor


def attention_batch(layer_name: str) -> AttentionBatch | None:
    """The metadata of one attention layer; None in a step that has none (profiling). Only inside a forward pass."""
    from vllm.forward_context import get_forward_context

    layers = get_forward_context().attn_metadata
    if layers is None:
        return None
    batch = layers[layer_name]
    return AttentionBatch(batch.slot_mapping, batch.block_table, batch.query_start_loc)


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A request of `run_requests`: positions whose keys are in the cache, and positions that the step computes."""

    cached: int
    new: int


def run_requests(worker: Any, requests: Sequence[StepRequest]) -> None:
    """Has vLLM's GPU worker run one step, as many of `requests` as it takes, over whatever is in the cache's pages.

    Before the worker serves; afterwards it has no request.
    """
    from vllm import SamplingParams
    from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

    runner = worker.model_runner
    (page,) = runner.block_tables.block_sizes
    step, at = SchedulerOutput.make_empty(), 1  # vLLM keeps page 0 for padding
    for number, request in enumerate(requests[: runner.max_num_reqs]):
        name, positions = f"self-test {number}", request.cached + request.new
        pages = list(range(at, at + -(-positions // page)))
        at += len(pages)
        tokens = [0] * positions
        step.scheduled_new_reqs.append(
            NewRequestData(
                req_id=name,
                prompt_token_ids=tokens,
                mm_features=[],
                sampling_params=SamplingParams(temperature=0.0, max_tokens=2),
                pooling_params=None,
                block_ids=(pages,),
                num_computed_tokens=request.cached,
                lora_request=None,
                prefill_token_ids=tokens,
            )
        )
        step.num_scheduled_tokens[name] = request.new
    step.total_num_scheduled_tokens = sum(step.num_scheduled_tokens.values())
    end = SchedulerOutput.make_empty()
    end.finished_req_ids = set(step.num_scheduled_tokens)
    try:
        worker.execute_model(step)
        worker.sample_tokens(None)
    finally:
        worker.execute_model(end)


# For measurements


def engine_classes() -> tuple[type, type]:
    """The classes whose methods take requests in and run steps."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    return EngineCore, UniProcExecutor


def request_channel(llm: AsyncLLM) -> Any:
    """The object whose `add_request_async` sends a request to the engine's process."""
    return llm.engine_core


def backbone_graphs(worker: Any) -> Mapping[Any, Any]:
    """CUDA graphs of the backbone by batch descriptor, of vLLM's GPU worker (0.33.0)."""
    graphs: Mapping[Any, Any] = worker.model_runner.cudagraph_manager.graphs
    return graphs
