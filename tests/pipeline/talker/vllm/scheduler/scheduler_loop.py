"""vLLM's own scheduler, with mixins, in a loop as vLLM's engine runs it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

PAGE, SLOTS, END = 4, 24, 24
LONGEST = 96
"""Positions of a request, its prompt included."""


class Engine:
    """A scheduler in a loop as vLLM's: one step is scheduled while the one before it runs."""

    def __init__(self, config: Any, pages: int, *mixins: type) -> None:
        """`pages` of the cache; `mixins`: what the scheduler is besides vLLM's asynchronous one."""
        import torch
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager
        from voxgate.pipeline.talker.vllm.compat import AsyncScheduler

        engine = self

        class Counting(AsyncScheduler):
            def update_from_output(self, order: Any, output: Any) -> Any:
                engine.vllm_rows += len(order.num_scheduled_tokens)
                return super().update_from_output(order, output)

        config.cache_config.num_gpu_blocks = pages
        spec = FullAttentionSpec(block_size=PAGE, num_kv_heads=1, head_size=64, dtype=torch.float32)
        cache = KVCacheConfig(num_blocks=pages, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["l"], spec)])
        self.vllm_rows = self.preempted = 0
        self.scheduler: Any = type("Mixed", (*mixins, Counting), {})(
            config, cache, StructuredOutputManager(config), PAGE, log_stats=False
        )
        self.scheduler.use_v2_model_runner = True  # as on a GPU
        self._in_flight: deque[tuple[Any, set[str]]] = deque()

    def add(self, name: str, slot: int, prompt: int, tokens: int) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        options = SamplingParams(
            temperature=0.0, max_tokens=tokens, stop_token_ids=[END], ignore_eos=True, detokenize=False
        )
        self.scheduler.add_request(Request(name, [slot] * prompt, options, None))

    def abort(self, name: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)

    def step(self, held: Sequence[str]) -> tuple[Any, Any]:
        """What was ordered, with the requests that `held` names left out, and what the step before it ended."""
        scheduler = self.scheduler
        left_out = [request for request in scheduler.running if request.request_id in held]
        scheduler.running = [request for request in scheduler.running if request.request_id not in held]
        order = scheduler.schedule()
        scheduler.running = left_out + scheduler.running
        self.preempted += len(order.preempted_req_ids or ())
        ordered = description(order)
        partial = {name for name in order.num_scheduled_tokens if scheduler.requests[name].is_prefill_chunk}
        self._in_flight.append((order, partial))
        ended = None
        if len(self._in_flight) == 2:
            ended = self._finish(*self._in_flight.popleft())
        return ordered, ended

    def _finish(self, order: Any, partial: set[str]) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        names = sorted(order.num_scheduled_tokens)
        positions = {each.req_id: each.num_computed_tokens for each in order.scheduled_new_reqs} | dict(
            zip(order.scheduled_cached_reqs.req_ids, order.scheduled_cached_reqs.num_computed_tokens, strict=True)
        )
        tokens = [[] if name in partial else [token(name, positions[name])] for name in names]
        before = dict(order.num_scheduled_tokens)
        outputs = self.scheduler.update_from_output(
            order,
            ModelRunnerOutput(
                req_ids=names, req_id_to_index={name: at for at, name in enumerate(names)}, sampled_token_ids=tokens
            ),
        )
        assert order.num_scheduled_tokens == before
        return {
            (output.request_id, output.finish_reason, output.stop_reason, tuple(output.new_token_ids))
            for batch in outputs.values()
            for output in batch.outputs
            if output.finish_reason is not None
        }

    def state(self) -> Any:
        scheduler = self.scheduler
        blocks = scheduler.kv_cache_manager.get_block_ids
        held = [page for name in scheduler.requests for page in blocks(name)[0]]
        assert len(held) == len(set(held)), "a page has two owners"
        return (
            {
                name: (
                    request.status, request.num_computed_tokens, request.num_tokens, request.num_output_tokens,
                    request.num_output_placeholders, request.num_in_flight_tokens, request.num_stale_output_tokens,
                    request.num_preemptions, request.is_prefill_chunk, request.prefill_stats is None,
                    len(blocks(name)[0]),
                )
                for name, request in scheduler.requests.items()
            },
            [request.request_id for request in scheduler.running],
            [request.request_id for request in scheduler.waiting],
            scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        )  # fmt: skip  # one state


def token(name: str, position: int) -> int:
    """What the model makes of a request at a position: its slot, or the end at one of forty positions."""
    slot = int(name.split("-")[1])
    return END if random.Random(f"{name} {position}").random() < 1 / 40 else slot


def description(order: Any) -> Any:
    """A scheduler output without the numbers of pages, which may be others, in no order."""
    cached = order.scheduled_cached_reqs
    rows = zip(cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, cached.new_block_ids, strict=True)
    return (
        order.num_scheduled_tokens,
        order.total_num_scheduled_tokens,
        {name: (computed, made, pages and len(pages[0])) for name, computed, made, pages in rows},
        {new.req_id: (new.num_computed_tokens, len(new.block_ids[0])) for new in order.scheduled_new_reqs},
        order.finished_req_ids,
        order.preempted_req_ids,
    )
