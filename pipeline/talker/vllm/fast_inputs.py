"""Prepares a step of frames alone with one kernel.

vLLM's runner prepares every step as if prompts, drafts and several caches could be in it: eight kernel launches and as
many small copies, most of a millisecond during which an idle device waits. Where each row of a step is one more frame,
all inputs follow from the rows' entries in the runner's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..cuda.step_kernels import PAGES, prepare_rows
from .compat import (
    INPUT_BATCH_FIELDS,
    PAD_SLOT_ID,
    CUDAGraphMode,
    InputBatch,
    UvaBufferPool,
)
from .proven import vllm_version

_STEPS_IN_FLIGHT = 4
"""Steps whose row numbers the device may still have to read; vLLM has two in flight."""


@dataclass(frozen=True, slots=True)
class _BatchSize:
    """What batches of one size have in common: views of the runner's buffers and constants.

    `fields`: those of the input batch that do not depend on its requests; `pages` and `cache_slots`: what vLLM's
    `prepare_attn` returns, one tensor per cache.
    """

    fields: Mapping[str, Any]
    pages: tuple[Tensor, ...]
    cache_slots: tuple[Tensor, ...]


class FastInputPreparation:
    """Replaces `prepare_inputs` and `prepare_attn` of vLLM's runner for graph steps of frames alone.

    Use it only after `self_test` has found that its results equal vLLM's.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._inputs: Callable[..., Any] = runner.prepare_inputs
        self._attn: Callable[..., Any] = runner.prepare_attn
        max_rows, device = runner.max_num_reqs, runner.device
        self._rows = UvaBufferPool(max_rows, torch.int64, _STEPS_IN_FLIGHT)
        self._counts = torch.arange(max_rows + 1, dtype=torch.int32, device=device)
        self._zeros = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._counts_np = np.arange(max_rows + 1, dtype=np.int32)
        self._ones_np = np.ones(max_rows, np.int32)
        self._sizes: dict[tuple[int, int, int], _BatchSize] = {}
        """By rows, rows with padding, and positions with padding: at most a few per number of rows."""
        self._prepared: tuple[Any, _BatchSize | None] = (None, None)
        """The last batch prepared here, and its size."""
        self._compared: list[bool] | None = None
        """During the self-test: for each batch, whether it equalled vLLM's."""

    @staticmethod
    def unsupported(runner: Any) -> str | None:
        """Why steps of this runner cannot be prepared here; None when they can."""
        if {field.name for field in fields(InputBatch)} != INPUT_BATCH_FIELDS:
            return f"vLLM {vllm_version()} has an input batch with other fields"
        tables = runner.block_tables
        one_device = (
            tables.num_kv_cache_groups == 1
            and runner.kernel_block_sizes == tables.block_sizes
            and not (runner.use_dcp or runner.use_pp)
            and runner.pcp_manager is None
            and runner.fast_prefill is None
            and runner.model_config.rswa_window is None
        )
        return None if one_device else "the model is spread over several devices or caches"

    def prepare_inputs(self, scheduler_output: Any, requests: Any, graph: Any, adapters: int) -> Any:
        """vLLM's input batch of a scheduler output; `requests`: what vLLM knows of them (`BatchReqState`)."""
        self._prepared = (None, None)
        count = len(requests.req_ids)
        if (
            graph.cg_mode != CUDAGraphMode.FULL
            or requests.has_prefill
            or requests.num_draft_tokens_np is not None
            or requests.num_tokens != count
        ):
            return self._inputs(scheduler_output, requests, graph, adapters)
        if self._compared is not None:
            self._compared.append(self._equals_vllm(scheduler_output, requests, graph, adapters))
        batch, size = self._batch(scheduler_output, requests, graph)
        self._prepared = (batch, size)
        return batch

    def prepare_attn(self, batch: Any) -> Any:
        """Block tables and slot mappings of a batch; a batch prepared here has them already."""
        prepared, size = self._prepared
        if batch is not prepared or size is None:
            return self._attn(batch)
        return size.pages, size.cache_slots

    def install(self) -> None:
        """Replaces the runner's methods."""
        self._runner.prepare_inputs, self._runner.prepare_attn = self.prepare_inputs, self.prepare_attn

    def uninstall(self) -> None:
        """Restores the runner's methods."""
        self._runner.prepare_inputs, self._runner.prepare_attn = self._inputs, self._attn

    def self_test(self, steps: Callable[[], object]) -> bool:
        """Whether every step of frames that `steps` runs is prepared as vLLM does it; False if there is none."""
        self._compared = []
        try:
            steps()
            return bool(self._compared) and all(self._compared)
        finally:
            self._compared = None

    def _equals_vllm(self, scheduler_output: Any, requests: Any, graph: Any, adapters: int) -> bool:
        """Prepares a batch both ways and compares the device tensors that the graph reads, and every other field."""
        count = len(requests.req_ids)
        padded, positions, rows_np = graph.num_reqs or count, graph.num_tokens, requests.idx_mapping_np
        tables = self._runner.block_tables
        batch = self._inputs(scheduler_output, requests, graph, adapters)
        self._attn(batch)
        inputs = [
            batch.input_ids[:count],
            batch.positions[:count],
            batch.seq_lens,
            batch.query_start_loc,
            tables.slot_mappings[:, :positions],
            *(
                pages[: tables.num_blocks.np[0, row]]
                for pages, row in zip(tables.input_block_tables[0], rows_np, strict=False)
            ),
            tables.input_block_tables[0][count:padded],
        ]
        expected = [each.clone() for each in inputs]
        for each in inputs:
            each.fill_(-1)
        own, _ = self._batch(scheduler_output, requests, graph)
        if not all(torch.equal(each, wanted) for each, wanted in zip(inputs, expected, strict=True)):
            return False
        indices = torch.arange(count, device=batch.logits_indices.device)
        return torch.equal(batch.logits_indices, indices[own.logits_indices]) and all(
            _equal(getattr(batch, field.name), getattr(own, field.name))
            for field in fields(batch)
            if field.name != "logits_indices"
        )

    def _prepare(self, rows: Tensor, count: int, padded: int, positions: int) -> None:
        states, tables, buffers = self._runner.req_states, self._runner.block_tables, self._runner.input_buffers
        blocks = tables.block_tables[0].gpu
        prepare_rows[(max(padded, positions),)](
            rows, states.num_computed_tokens.gpu, states.last_sampled_tokens, blocks, tables.num_blocks.gpu,
            buffers.input_ids, buffers.positions, buffers.seq_lens, buffers.query_start_loc,
            tables.input_block_tables[0], tables.slot_mappings, count, padded, blocks.stride(0),
            tables.block_sizes[0], PAD_SLOT_ID, SPAN=PAGES, num_warps=1,
        )  # fmt: skip  # one argument list of the kernel

    def _batch(self, scheduler_output: Any, requests: Any, graph: Any) -> tuple[InputBatch, _BatchSize]:
        count = len(requests.req_ids)
        padded, positions, rows_np = graph.num_reqs or count, graph.num_tokens, requests.idx_mapping_np
        if (size := self._sizes.get((count, padded, positions))) is None:
            size = self._sizes[count, padded, positions] = self._size(count, padded, positions)
        rows: Tensor = self._rows.copy_to_uva(rows_np)
        self._prepare(rows, count, padded, positions)
        computed = self._runner.req_states.num_computed_tokens_np[rows_np]
        bound = np.zeros(padded, np.int32)
        np.add(computed, 1, out=bound[:count])
        batch = InputBatch(
            **size.fields,
            req_ids=requests.req_ids,
            idx_mapping=rows,
            idx_mapping_np=rows_np,
            expanded_idx_mapping=rows,
            seq_lens_cpu_upper_bound=torch.from_numpy(bound),
            num_computed_tokens_np=computed,
            prefill_len_np=requests.prefill_len_np,
            num_computed_prefill_tokens_np=requests.num_computed_prefill_tokens_np,
            is_prefilling_np=requests.is_prefilling_np,
            decode_graph_eligible=requests.decode_graph_eligible,
            has_structured_output_reqs=scheduler_output.has_structured_output_requests,
        )
        return batch, size

    def _size(self, count: int, padded: int, positions: int) -> _BatchSize:
        buffers, tables = self._runner.input_buffers, self._runner.block_tables
        return _BatchSize(
            {
                "num_reqs": count,
                "num_reqs_after_padding": padded,
                "expanded_local_pos": self._zeros[:count],
                "num_scheduled_tokens": self._ones_np[:count],
                "num_tokens": count,
                "num_tokens_after_padding": positions,
                "num_draft_tokens": 0,
                "num_draft_tokens_per_req": None,
                "num_admitted_draft_tokens": None,
                "query_start_loc": buffers.query_start_loc[: padded + 1],
                "query_start_loc_np": np.minimum(self._counts_np[: padded + 1], count),
                "seq_lens": buffers.seq_lens[:padded],
                "dcp_local_seq_lens": None,
                "has_prefill": False,
                "prefill_runs_as_decode_np": None,
                "max_seq_len_np": None,
                "max_query_len": None,
                "input_ids": buffers.input_ids[:positions],
                "positions": buffers.positions[:positions],
                "is_padding": buffers.is_padding[:positions],
                # All rows in order: vLLM indexes with it, and a slice needs no gather.
                "logits_indices": slice(0, count),
                "cu_num_logits": self._counts[: count + 1],
                "cu_num_logits_np": self._counts_np[: count + 1],
                "prompt_lens": None,
                "fast_prefill": None,
                "pcp": None,
            },
            tuple(each[:padded] for each in tables.input_block_tables),
            # vLLM iterates over it and takes items from it, which costs less of a tuple than of a tensor.
            tuple(each[:positions] for each in tables.slot_mappings),
        )


def _equal(one: Any, other: Any) -> bool:
    """Whether two fields of a batch have the same value; tensors and arrays by type, shape and content."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)
