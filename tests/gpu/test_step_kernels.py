"""`prepare_rows` against the preparation by vLLM's runner, for a batch of single positions."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
import torch

KERNEL_MODULES = (
    "voxgate.codecs.neural.cuda.kernels",
    "voxgate.pipeline.talker.cuda.backbone_kernels",
    "voxgate.pipeline.talker.cuda.mapped_tables",
    "voxgate.pipeline.talker.cuda.predictor.kernels",
    "voxgate.pipeline.talker.cuda.sampling_kernels",
    "voxgate.pipeline.talker.cuda.step_kernels",
)
REQUESTS, STRIDE, PAGE_SIZE, PADDING_SLOT = 9, 150, 16, -1


@pytest.mark.parametrize(("count", "padded", "positions"), [(1, 1, 1), (3, 4, 4), (5, 6, 8), (0, 1, 1)])
def test_rows_get_the_pages_and_positions_of_their_requests(
    device: torch.device, count: int, padded: int, positions: int
) -> None:
    from voxgate.pipeline.talker.cuda.step_kernels import PAGES, prepare_rows

    random = torch.Generator().manual_seed(count)
    own = torch.randint(1, 1000, (REQUESTS, STRIDE), generator=random, dtype=torch.int32)
    computed = torch.randint(0, STRIDE * PAGE_SIZE, (REQUESTS,), generator=random, dtype=torch.int32)
    lengths = computed // PAGE_SIZE + 1
    last_token = torch.randint(0, 500, (REQUESTS, 1), generator=random)
    rows = torch.randperm(REQUESTS, generator=random)[:count].int()
    filler = torch.full((16,), 77, dtype=torch.int32)
    ids, cache_slots, at = filler.clone(), filler.long(), filler.long()
    # Exactly as long as the padded batch: a write behind it would be an error.
    seq_lens, starts, pages = (
        filler[:padded].clone(),
        filler[: padded + 1].clone(),
        torch.full((padded, STRIDE), 77).int(),
    )
    outputs = [each.to(device) for each in (ids, at, seq_lens, starts, pages, cache_slots)]
    inputs = [each.to(device) for each in (torch.cat([rows, filler]), computed, last_token, own, lengths)]
    prepare_rows[(max(padded, positions),)](
        *inputs, *outputs, count, padded, STRIDE, PAGE_SIZE, PADDING_SLOT, SPAN=PAGES, num_warps=1
    )
    ids, at, seq_lens, starts, pages, cache_slots = (each.cpu() for each in outputs)
    for n, row in enumerate(rows.tolist()):
        position, length = int(computed[row]), int(lengths[row])
        assert (int(ids[n]), int(at[n]), int(seq_lens[n])) == (int(last_token[row]), position, position + 1)
        assert pages[n, :length].tolist() == own[row, :length].tolist()
        assert int(cache_slots[n]) == int(own[row, position // PAGE_SIZE]) * PAGE_SIZE + position % PAGE_SIZE
    assert starts.tolist() == [*range(count + 1), *[count] * (padded - count)]
    assert not seq_lens[count:].any()
    assert not pages[count:].any()
    assert cache_slots[count:positions].eq(PADDING_SLOT).all()
    assert cache_slots[positions:].eq(77).all()
    assert ids[count:].eq(77).all()


@pytest.mark.parametrize("name", KERNEL_MODULES)
def test_no_kernel_parameter_collides_with_the_launcher(name: str) -> None:
    """Triton generates a launcher with the kernel's parameters and `options`; its interpreter does not."""
    kernels = [value.fn for value in vars(import_module(name)).values() if hasattr(value, "fn")]
    assert kernels
    for kernel in kernels:
        assert "options" not in inspect.signature(kernel).parameters, kernel.__name__
