from __future__ import annotations

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize

pytest.importorskip("triton")  # the imports below need it
from voxgate.benchmarks.gpu.attention import LAYERS, launches
from voxgate.benchmarks.gpu.parts import PAGE
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights

SIZE = TransformerSize(48, 80, 2, 4, 2, 64, 1e-6, 1e4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("past", [31, 32])
def test_every_row_has_pages_of_its_own(dtype: torch.dtype, past: int) -> None:
    calls = []

    def attention(qkv: Tensor, _layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        calls.append(cache.data_ptr())
        assert cache.dtype is dtype
        assert qkv.shape == (3, 8 * SIZE.head_dim)
        assert out.shape == (3, 4 * SIZE.head_dim)
        assert rows.positions.tolist() == [past] * 3
        assert sorted(rows.pages.flatten().tolist()) == list(range(len(cache)))
        own = rows.pages[torch.arange(3), past // PAGE]
        assert rows.cache_slots.tolist() == (own * PAGE + past % PAGE).tolist()

    launches(attention, SIZE, 3, past, dtype, torch.device("cpu"))()
    assert len(calls) == LAYERS
    assert len(set(calls)) == LAYERS
