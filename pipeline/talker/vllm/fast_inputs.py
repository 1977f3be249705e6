"""A step of frames alone, prepared in one kernel.

vLLM's runner prepares every step as if prompts, drafts and several caches could be in it: eight launches and as many
small copies, most of a millisecond in which a device that was at rest still waits. Where each row of a step is one
more frame, all of it follows from the rows' places in the runner's tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.buffer_utils import UvaBufferPool
from vllm.v1.worker.gpu.input_batch import InputBatch

from ..cuda.step_kernels import PAGES, prepare_rows

_UNDER_WAY = 4
"""Steps whose rows the device may still have to read; vLLM has two."""
_EXPECTED_FIELDS = frozenset(
    {
        *("req_ids", "num_reqs", "num_reqs_after_padding", "idx_mapping", "idx_mapping_np", "expanded_idx_mapping"),
        *("expanded_local_pos", "num_scheduled_tokens", "num_tokens", "num_tokens_after_padding", "num_draft_tokens"),
        *("num_draft_tokens_per_req", "query_start_loc", "query_start_loc_np", "seq_lens", "seq_lens_cpu_upper_bound"),
        *("dcp_local_seq_lens", "num_computed_tokens_np", "prefill_len_np", "num_computed_prefill_tokens_np"),
        *("is_prefilling_np", "max_seq_len_np", "input_ids", "positions", "is_padding", "logits_indices"),
        *("cu_num_logits", "cu_num_logits_np", "has_structured_output_reqs", "prompt_lens"),
    }
)
"""What vLLM's batch is made of; of any other its own code knows."""


class FastInputPreparation:
    """Takes `prepare_inputs` and `prepare_attn` of vLLM's runner over, for steps of frames alone that are a graph.

    `self_test` must have found that it does as vLLM does.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._inputs: Callable[..., Any] = runner.prepare_inputs
        self._attn: Callable[..., Any] = runner.prepare_attn
        most, device = runner.max_num_reqs, runner.device
        self._rows = UvaBufferPool(most, torch.int32, _UNDER_WAY)
        self._counts = torch.arange(most + 1, dtype=torch.int32, device=device)
        self._nothing = torch.zeros(most, dtype=torch.int32, device=device)
        self._counts_np = np.arange(most + 1, dtype=np.int32)
        self._ones_np = np.ones(most, np.int32)
        self._lean: Any = None
        self._compared: list[bool] | None = None
        """While it is proved: of each batch, whether it was vLLM's."""

    @staticmethod
    def supports(runner: Any) -> bool:
        """Whether it knows this vLLM, and nothing that it leaves out is asked for."""
        return (
            {field.name for field in fields(InputBatch)} == _EXPECTED_FIELDS
            and runner.block_tables.num_kv_cache_groups == 1
            and not (runner.use_dcp or runner.use_pp)
            and runner.pcp_manager is None
            and runner.model_config.rswa_window is None
        )

    def prepare_inputs(self, order: Any, graph: Any) -> Any:
        """vLLM's batch of an order."""
        self._lean = None
        count = len(order.num_scheduled_tokens)
        if graph.cg_mode != CUDAGraphMode.FULL or order.total_num_scheduled_tokens != count:
            return self._inputs(order, graph)
        states = self._runner.req_states
        names = list(order.num_scheduled_tokens)
        rows = np.fromiter(map(states.req_id_to_index.__getitem__, names), np.int32, count)
        prompts, read = states.prefill_len.np[rows], states.num_computed_prefill_tokens[rows]
        if order.scheduled_spec_decode_tokens or (read < prompts).any():
            return self._inputs(order, graph)
        if self._compared is not None:
            self._compared.append(self._is_as_vllms(order, graph, names, rows))
        self._lean = self._batch(order, graph, names, rows, prompts, read)
        return self._lean

    def prepare_attn(self, batch: Any) -> Any:
        """Pages and places of a batch; of ours they are there already."""
        if batch is not self._lean:
            return self._attn(batch)
        tables = self._runner.block_tables
        pages = tuple(each[: batch.num_reqs_after_padding] for each in tables.input_block_tables)
        return pages, tables.slot_mappings[:, : batch.num_tokens_after_padding]

    def install(self) -> None:
        """From here on the runner's batches come from here."""
        self._runner.prepare_inputs, self._runner.prepare_attn = self.prepare_inputs, self.prepare_attn

    def uninstall(self) -> None:
        """And from here on from vLLM again."""
        self._runner.prepare_inputs, self._runner.prepare_attn = self._inputs, self._attn

    def self_test(self, steps: Callable[[], object]) -> bool:
        """Whether it prepared all that `steps` runs as vLLM does; there must be a step of frames alone in it."""
        self._compared = []
        try:
            steps()
            return bool(self._compared) and all(self._compared)
        finally:
            self._compared = None

    def _is_as_vllms(self, order: Any, graph: Any, names: list[str], rows_np: Any) -> bool:
        """Have both prepare a batch, and compare what they leave for the graph."""
        count, padded, positions = len(names), graph.num_reqs or len(names), graph.num_tokens
        tables = self._runner.block_tables
        batch = self._inputs(order, graph)
        self._attn(batch)
        of_rows, of_all = (batch.input_ids, batch.positions), (batch.seq_lens, batch.query_start_loc)
        left = [
            *(each[:count] for each in of_rows),
            *of_all,
            tables.slot_mappings[:, :positions],
            *(
                pages[: tables.num_blocks.np[0, row]]
                for pages, row in zip(tables.input_block_tables[0], rows_np, strict=False)
            ),
            tables.input_block_tables[0][count:padded],
        ]
        theirs = [each.clone() for each in left]
        for each in left:
            each.fill_(-1)
        self._prepare(self._rows.copy_to_uva(rows_np), count, padded, positions)
        same = all(torch.equal(mine, his) for mine, his in zip(left, theirs, strict=True))
        return same and batch.req_ids == names and batch.logits_indices.tolist() == list(range(count))

    def _prepare(self, rows: Tensor, count: int, padded: int, positions: int) -> None:
        states, tables, buffers = self._runner.req_states, self._runner.block_tables, self._runner.input_buffers
        own = tables.block_tables[0].gpu
        prepare_rows[(max(padded, positions),)](
            rows, states.num_computed_tokens.gpu, states.last_sampled_tokens, own, tables.num_blocks.gpu,
            buffers.input_ids, buffers.positions, buffers.seq_lens, buffers.query_start_loc,
            tables.input_block_tables[0], tables.slot_mappings, count, padded, own.stride(0),
            tables.kernel_block_sizes[0], PAD_SLOT_ID, SPAN=PAGES, num_warps=1,
        )  # fmt: skip  # one argument list

    def _batch(self, order: Any, graph: Any, names: list[str], rows_np: Any, prompts: Any, read: Any) -> InputBatch:
        runner, buffers, count = self._runner, self._runner.input_buffers, len(names)
        padded, positions = graph.num_reqs or count, graph.num_tokens
        rows: Tensor = self._rows.copy_to_uva(rows_np)
        self._prepare(rows, count, padded, positions)
        computed = runner.req_states.num_computed_tokens_np[rows_np]
        bound = np.zeros(padded, np.int32)
        np.add(computed, 1, out=bound[:count])
        return InputBatch(
            req_ids=names,
            num_reqs=count,
            num_reqs_after_padding=padded,
            idx_mapping=rows,
            idx_mapping_np=rows_np,
            expanded_idx_mapping=rows,
            expanded_local_pos=self._nothing[:count],
            num_scheduled_tokens=self._ones_np[:count],
            num_tokens=count,
            num_tokens_after_padding=positions,
            num_draft_tokens=0,
            num_draft_tokens_per_req=None,
            query_start_loc=buffers.query_start_loc[: padded + 1],
            query_start_loc_np=np.minimum(self._counts_np[: padded + 1], count),
            seq_lens=buffers.seq_lens[:padded],
            seq_lens_cpu_upper_bound=torch.from_numpy(bound),
            dcp_local_seq_lens=None,
            num_computed_tokens_np=computed,
            prefill_len_np=prompts,
            num_computed_prefill_tokens_np=read,
            is_prefilling_np=np.zeros(count, np.bool_),
            max_seq_len_np=None,
            input_ids=buffers.input_ids[:positions],
            positions=buffers.positions[:positions],
            is_padding=buffers.is_padding[:positions],
            # The rows as they are: vLLM takes it for an index, and nothing has to be gathered.
            logits_indices=slice(0, count),
            cu_num_logits=self._counts[: count + 1],
            cu_num_logits_np=self._counts_np[: count + 1],
            has_structured_output_reqs=order.has_structured_output_requests,
            prompt_lens=None,
        )
