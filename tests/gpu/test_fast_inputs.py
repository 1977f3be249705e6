"""Fast input preparation: which steps it takes, and that the batches equal those of vLLM's runner."""

from __future__ import annotations

from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from voxgate.pipeline.talker.vllm.compat import INPUT_BATCH_FIELDS

MOST, LINE, PAGE = 6, 8, 16
PROMPT = 5
Batch: Any = make_dataclass("Batch", sorted(INPUT_BATCH_FIELDS))
"""In place of vLLM's `InputBatch`."""


class Pool:
    """As vLLM's, in memory of one kind."""

    def __init__(self, *_: Any) -> None: ...

    def copy_to_uva(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows.copy())


class Runner:
    """The part of vLLM's runner that is used: requests by row, pages by request. `wrong`: fills other tokens in."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.max_num_reqs, self.device = MOST, torch.device("cpu")
        self.wrong, self.asked = wrong, 0
        computed = torch.tensor([PROMPT, 7, 40, 3, 20, 16], dtype=torch.int32)
        self.rows = {name: row for row, name in enumerate("abcdef")}
        self.req_states = SimpleNamespace(
            num_computed_tokens=SimpleNamespace(gpu=computed),
            num_computed_tokens_np=computed.numpy(),
            last_sampled_tokens=torch.arange(100, 100 + MOST)[:, None],
        )
        lengths = (computed // PAGE + 1).int()
        self.block_tables = SimpleNamespace(
            block_tables=[SimpleNamespace(gpu=torch.arange(1, 1 + MOST * LINE, dtype=torch.int32).view(MOST, LINE))],
            num_blocks=SimpleNamespace(gpu=lengths[None], np=lengths[None].numpy()),
            input_block_tables=[torch.zeros(MOST, LINE, dtype=torch.int32)],
            slot_mappings=torch.zeros(1, 16, dtype=torch.int64),
            block_sizes=[PAGE],
            num_kv_cache_groups=1,
        )
        self.kernel_block_sizes = [PAGE]
        self.input_buffers = SimpleNamespace(
            input_ids=torch.zeros(16, dtype=torch.int32),
            positions=torch.zeros(16, dtype=torch.int64),
            seq_lens=torch.zeros(MOST, dtype=torch.int32),
            query_start_loc=torch.zeros(MOST + 1, dtype=torch.int32),
            is_padding=torch.zeros(16, dtype=torch.bool),
        )
        self.use_dcp = self.use_pp = False
        self.pcp_manager = self.fast_prefill = None
        self.model_config = SimpleNamespace(rswa_window=None)

    def requests(self, order: Any) -> SimpleNamespace:
        """vLLM's `BatchReqState` of an order."""
        names = list(order.num_scheduled_tokens)
        rows = np.array([self.rows[name] for name in names], np.intp)
        read = np.minimum(self.req_states.num_computed_tokens_np[rows], PROMPT)
        prompts = np.full(len(names), PROMPT, np.int32)
        return SimpleNamespace(
            req_ids=names,
            num_scheduled_tokens=np.array(list(order.num_scheduled_tokens.values()), np.int32),
            num_tokens=order.total_num_scheduled_tokens,
            num_draft_tokens_np=None,
            idx_mapping_np=rows,
            prefill_len_np=prompts,
            num_computed_prefill_tokens_np=read,
            is_prefilling_np=read < prompts,
            has_prefill=bool((read < prompts).any()),
            decode_graph_eligible=not (read < prompts).any(),
        )

    def prepare(self, order: Any, graph: Any) -> Any:
        return self.prepare_inputs(order, self.requests(order), graph, 0)

    def prepare_inputs(self, order: Any, requests: Any, graph: Any, _adapters: int) -> Any:
        self.asked += 1
        names, states, tables, buffers = requests.req_ids, self.req_states, self.block_tables, self.input_buffers
        count, padded, rows = len(names), graph.num_reqs, requests.idx_mapping_np
        at = states.num_computed_tokens.gpu[rows].long()
        buffers.input_ids[:count] = states.last_sampled_tokens[rows, 0].int() + self.wrong
        buffers.positions[:count] = at
        buffers.seq_lens[:padded] = 0
        buffers.seq_lens[:count] = at.int() + 1
        buffers.query_start_loc[: padded + 1] = torch.arange(padded + 1).clamp(max=count)
        tables.slot_mappings[:, : graph.num_tokens] = -1
        own = tables.block_tables[0].gpu[rows]
        tables.slot_mappings[0, :count] = own.gather(1, (at // PAGE)[:, None])[:, 0].long() * PAGE + at % PAGE
        tables.input_block_tables[0][:padded] = 0
        tables.input_block_tables[0][:count] = own
        bound = np.zeros(padded, np.int32)
        bound[:count] = at.numpy() + 1
        counts = torch.arange(count + 1, dtype=torch.int32)
        return Batch(
            **dict.fromkeys(INPUT_BATCH_FIELDS)
            | {
                "req_ids": names,
                "num_reqs": count,
                "num_reqs_after_padding": padded,
                "idx_mapping": torch.from_numpy(rows.copy()),
                "idx_mapping_np": rows,
                "expanded_idx_mapping": torch.from_numpy(rows.copy()),
                "expanded_local_pos": torch.zeros(count, dtype=torch.int32),
                "num_scheduled_tokens": requests.num_scheduled_tokens,
                "num_tokens": requests.num_tokens,
                "num_tokens_after_padding": graph.num_tokens,
                "num_draft_tokens": 0,
                "query_start_loc": buffers.query_start_loc[: padded + 1],
                "query_start_loc_np": np.minimum(np.arange(padded + 1, dtype=np.int32), count),
                "seq_lens": buffers.seq_lens[:padded],
                "seq_lens_cpu_upper_bound": torch.from_numpy(bound),
                "num_computed_tokens_np": states.num_computed_tokens_np[rows],
                "prefill_len_np": requests.prefill_len_np,
                "num_computed_prefill_tokens_np": requests.num_computed_prefill_tokens_np,
                "is_prefilling_np": requests.is_prefilling_np,
                "has_prefill": requests.has_prefill,
                "decode_graph_eligible": requests.decode_graph_eligible,
                "input_ids": buffers.input_ids[: graph.num_tokens],
                "positions": buffers.positions[: graph.num_tokens],
                "is_padding": buffers.is_padding[: graph.num_tokens],
                "logits_indices": torch.arange(count),
                "cu_num_logits": counts,
                "cu_num_logits_np": counts.numpy(),
                "has_structured_output_reqs": order.has_structured_output_requests,
            }
        )

    def prepare_attn(self, batch: Any) -> Any:  # noqa: ARG002 - as vLLM's
        return "pages and places", "of vLLM's"


def order(**tokens: int) -> SimpleNamespace:
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        has_structured_output_requests=False,
    )


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> Any:
    if device.type != "cpu":
        pytest.skip("the engine's own runner tests it there")
    from voxgate.pipeline.talker.vllm import fast_inputs as gpu_inputs

    monkeypatch.setattr(gpu_inputs, "UvaBufferPool", Pool)
    monkeypatch.setattr(gpu_inputs, "InputBatch", Batch)
    return gpu_inputs.FastInputPreparation


def graph(rows: int, *, full: bool = True) -> SimpleNamespace:
    from vllm.config.compilation import CUDAGraphMode

    mode = CUDAGraphMode.FULL if full else CUDAGraphMode.NONE
    return SimpleNamespace(cg_mode=mode, num_reqs=rows, num_tokens=rows)


def test_step_of_frames_is_prepared_without_vllm(lean: Any) -> None:
    runner = Runner()
    ours = lean(runner)
    ours.install()
    batch = runner.prepare(order(c=1, e=1, a=1), graph(4))
    assert runner.asked == 0
    assert (batch.req_ids, batch.num_reqs, batch.num_reqs_after_padding) == (["c", "e", "a"], 3, 4)
    assert batch.input_ids[:3].tolist() == [102, 104, 100]
    assert batch.positions[:3].tolist() == [40, 20, PROMPT]
    assert batch.seq_lens.tolist() == [41, 21, PROMPT + 1, 0]
    assert batch.query_start_loc.tolist() == batch.query_start_loc_np.tolist() == [0, 1, 2, 3, 3]
    assert batch.seq_lens_cpu_upper_bound.tolist() == [41, 21, PROMPT + 1, 0]
    states = torch.arange(8).view(4, 2)
    assert states[batch.logits_indices].tolist() == states[:3].tolist()
    pages, places = runner.prepare_attn(batch)
    assert pages[0][0, :3].tolist() == [17, 18, 19]
    assert [each.tolist() for each in places] == [[19 * PAGE + 8, 34 * PAGE + 4, 1 * PAGE + 5, -1]]


def test_step_of_the_same_size_has_its_own_requests(lean: Any) -> None:
    runner = Runner()
    ours = lean(runner)
    ours.install()
    first = runner.prepare(order(c=1, e=1), graph(4))
    runner.prepare(order(c=1, e=1, a=1), graph(4))
    second = runner.prepare(order(a=1, f=1), graph(4))
    assert (first.req_ids, second.req_ids) == (["c", "e"], ["a", "f"])
    assert first.idx_mapping_np.tolist() == [2, 4]
    assert second.idx_mapping_np.tolist() == second.idx_mapping.tolist() == [0, 5]
    assert second.query_start_loc.tolist() == second.query_start_loc_np.tolist() == [0, 1, 2, 2, 2]
    assert second.seq_lens_cpu_upper_bound.tolist() == [PROMPT + 1, 17, 0, 0]
    pages, _ = runner.prepare_attn(second)
    assert pages[0][:, 0].tolist() == [1, 41, 0, 0]


def test_other_steps_are_prepared_by_vllm(lean: Any) -> None:
    runner = Runner()
    theirs = runner.prepare_attn(None)
    ours = lean(runner)
    ours.install()
    runner.prepare(order(c=1), graph(1))
    assert runner.asked == 0
    for wanted, kind in (
        (order(c=1, e=2), graph(4)),  # more than a frame
        (order(c=1, d=1), graph(2)),  # the last position of a prompt
        (order(c=1), graph(1, full=False)),
    ):
        batch = runner.prepare(wanted, kind)
        assert isinstance(batch.logits_indices, torch.Tensor)
        assert runner.prepare_attn(batch) == theirs
    assert runner.asked == 3
    ours.uninstall()
    runner.prepare(order(c=1), graph(1))
    assert runner.asked == 4


@pytest.mark.parametrize("wrong", [False, True])
def test_self_test_passes_when_all_fields_equal_those_of_vllm(lean: Any, wrong: bool) -> None:
    runner = Runner(wrong=wrong)
    ours = lean(runner)
    ours.install()
    assert not ours.self_test(lambda: None), "no step of frames was compared"
    assert ours.self_test(lambda: runner.prepare(order(f=1, b=1, c=1), graph(4))) is not wrong
    asked = runner.asked
    runner.prepare(order(f=1), graph(1))
    assert runner.asked == asked, "vLLM prepares a second time in the self-test only"


@pytest.mark.parametrize("field", ["seq_lens_cpu_upper_bound", "has_prefill", "cu_num_logits_np", "num_draft_tokens"])
def test_self_test_fails_when_a_field_of_vllm_has_another_value(
    lean: Any, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner()
    prepare = runner.prepare_inputs

    def otherwise(*args: Any) -> Any:
        batch = prepare(*args)
        setattr(batch, field, "another value")
        return batch

    monkeypatch.setattr(runner, "prepare_inputs", otherwise)
    ours = lean(runner)
    ours.install()
    assert not ours.self_test(lambda: runner.prepare(order(f=1, b=1), graph(2)))


def test_runner_with_another_batch_or_cache_is_left_to_vllm(lean: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner()
    assert lean.unsupported(runner) is None
    runner.kernel_block_sizes = [2 * PAGE]
    assert lean.unsupported(runner) == "the model is spread over several devices or caches"
    from voxgate.pipeline.talker.vllm import fast_inputs

    monkeypatch.setattr(fast_inputs, "InputBatch", make_dataclass("Other", ["req_ids"]))
    assert "has an input batch with other fields" in lean.unsupported(Runner())
