"""Which steps are prepared by ours, what vLLM is told of them, and that they are its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

MOST, LINE, PAGE = 6, 8, 16
PROMPT = 5


class Pool:
    """As vLLM's, in memory of one kind."""

    def __init__(self, *_: Any) -> None: ...

    def copy_to_uva(self, rows: np.ndarray) -> torch.Tensor:
        return torch.cat([torch.from_numpy(rows), torch.zeros(1, dtype=torch.int32)])[: len(rows)]


class Runner:
    """As much of vLLM's as is looked at: requests by row, pages by request; `wrong` spoils what it prepares itself."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.max_num_reqs, self.device = MOST, torch.device("cpu")
        self.wrong, self.asked = wrong, 0
        computed = torch.tensor([PROMPT, 7, 40, 3, 20, 16], dtype=torch.int32)
        self.req_states = SimpleNamespace(
            req_id_to_index={name: row for row, name in enumerate("abcdef")},
            prefill_len=SimpleNamespace(np=np.full(MOST, PROMPT, np.int32)),
            num_computed_prefill_tokens=np.minimum(computed.numpy(), PROMPT),
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
            kernel_block_sizes=[PAGE],
        )
        self.input_buffers = SimpleNamespace(
            input_ids=torch.zeros(16, dtype=torch.int32),
            positions=torch.zeros(16, dtype=torch.int64),
            seq_lens=torch.zeros(MOST, dtype=torch.int32),
            query_start_loc=torch.zeros(MOST + 1, dtype=torch.int32),
            is_padding=torch.zeros(16, dtype=torch.bool),
        )

    def prepare_inputs(self, order: Any, graph: Any) -> Any:
        self.asked += 1
        names, states, tables, buffers = list(order.num_scheduled_tokens), self.req_states, self.block_tables, None
        buffers, count = self.input_buffers, len(names)
        padded = graph.num_reqs
        rows = [states.req_id_to_index[name] for name in names]
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
        return SimpleNamespace(
            req_ids=names,
            input_ids=buffers.input_ids[: graph.num_tokens],
            positions=buffers.positions[: graph.num_tokens],
            seq_lens=buffers.seq_lens[:padded],
            query_start_loc=buffers.query_start_loc[: padded + 1],
            logits_indices=torch.arange(count),
        )

    def prepare_attn(self, batch: Any) -> Any:  # noqa: ARG002 - as vLLM's
        return "pages and places", "of vLLM's"


def order(**tokens: int) -> SimpleNamespace:
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_spec_decode_tokens={},
        has_structured_output_requests=False,
    )


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> Any:
    if device.type != "cpu":
        pytest.skip("the device's own runner proves it there")
    from voxgate.pipeline.talker.vllm import fast_inputs as gpu_inputs

    monkeypatch.setattr(gpu_inputs, "UvaBufferPool", Pool)
    monkeypatch.setattr(gpu_inputs, "InputBatch", SimpleNamespace)
    return gpu_inputs.FastInputPreparation


def graph(rows: int, *, full: bool = True) -> SimpleNamespace:
    from vllm.config.compilation import CUDAGraphMode

    mode = CUDAGraphMode.FULL if full else CUDAGraphMode.NONE
    return SimpleNamespace(cg_mode=mode, num_reqs=rows, num_tokens=rows)


def test_a_step_of_frames_is_prepared_by_ours(lean: Any) -> None:
    runner = Runner()
    ours = lean(runner)
    ours.install()
    batch = runner.prepare_inputs(order(c=1, e=1, a=1), graph(4))
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
    assert places.tolist() == [[19 * PAGE + 8, 34 * PAGE + 4, 1 * PAGE + 5, -1]]


def test_other_steps_are_vllms(lean: Any) -> None:
    runner = Runner()
    theirs = runner.prepare_attn(None)
    ours = lean(runner)
    ours.install()
    ours.prepare_inputs(order(c=1), graph(1))
    assert runner.asked == 0
    for wanted, kind in (
        (order(c=1, e=2), graph(4)),  # more than a frame
        (order(c=1, d=1), graph(2)),  # the last position of a prompt
        (order(c=1), graph(1, full=False)),
    ):
        batch = runner.prepare_inputs(wanted, kind)
        assert isinstance(batch.logits_indices, torch.Tensor)
        assert runner.prepare_attn(batch) == theirs
    assert runner.asked == 3
    ours.uninstall()
    runner.prepare_inputs(order(c=1), graph(1))
    assert runner.asked == 4


@pytest.mark.parametrize("wrong", [False, True])
def test_it_is_trusted_when_it_does_as_vllm_does(lean: Any, wrong: bool) -> None:
    runner = Runner(wrong=wrong)
    ours = lean(runner)
    ours.install()
    assert not ours.self_test(lambda: None), "nothing was seen of it"
    assert ours.self_test(lambda: runner.prepare_inputs(order(f=1, b=1, c=1), graph(4))) is not wrong
    asked = runner.asked
    runner.prepare_inputs(order(f=1), graph(1))
    assert runner.asked == asked, "only while it is proved"
