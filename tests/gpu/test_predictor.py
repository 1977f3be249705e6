"""`GpuCodePredictor` and its products against the reference on the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ProductTile
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.cuda.predictor import predictor as served
from voxgate.pipeline.talker.cuda.predictor.predictor import GpuCodePredictor
from voxgate.pipeline.talker.cuda.tiles import Epilogue
from voxgate.pipeline.talker.reference.predictor import CodePredictor
from voxgate.pipeline.talker.reference.sampling import Candidates

from ..pipeline.talker.small_model import small_checkpoint, small_weights


def candidates_on_device(rows: int, vocab: int, top_k: int, top_p: float, device: torch.device) -> Candidates:
    temperature = torch.full((rows,), 0.8, device=device)
    all_top_k, all_top_p = torch.full((rows,), top_k, device=device), torch.full((rows,), top_p, device=device)
    return Candidates.on_device(temperature, all_top_k, all_top_p, vocab)


@pytest.mark.parametrize("hidden", [16, 24], ids=["as wide as the talker", "narrower"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("rows", "top_k", "top_p"), [(3, 0, 1.0), (5, 7, 0.8)])
def test_codes_equal_the_reference(
    checkpoint: TalkerCheckpoint, device: torch.device, hidden: int, kv_heads: int, rows: int, top_k: int, top_p: float
) -> None:
    small = small_checkpoint(checkpoint, hidden=hidden, kv_heads=kv_heads)
    weights = small_weights(small)
    generator = torch.Generator().manual_seed(rows)
    states = torch.randn(rows, hidden, generator=generator)
    first = torch.randint(small.codebook, (rows,), generator=generator)
    noise = torch.rand(rows, small.groups - 1, generator=generator)
    table = weights["talker.model.codec_embedding.weight"]
    reference = CodePredictor(weights, table, small.predictor, small.groups, rows)
    own = {name: tensor.to(device) for name, tensor in weights.items()}
    gpu = GpuCodePredictor(own, table.to(device), small.predictor, small.groups, rows)
    expected = reference(
        states,
        first,
        Candidates.of(torch.full((rows,), 0.8), torch.full((rows,), top_k), torch.full((rows,), top_p), small.codebook),
        noise,
    )
    drawn = gpu(
        states.to(device),
        first.to(device),
        candidates_on_device(rows, small.codebook, top_k, top_p, device),
        noise.to(device),
    )
    assert drawn.tolist() == expected.tolist()


def test_products_of_the_library_give_the_logits_of_the_chain(
    checkpoint: TalkerCheckpoint, device: torch.device
) -> None:
    half = torch.bfloat16 if device.type == "cuda" else torch.float16
    small, rows = small_checkpoint(checkpoint, groups=3), 4
    weights = {name: tensor.to(device, half) for name, tensor in small_weights(small).items()}
    table = weights["talker.model.codec_embedding.weight"]
    generator = torch.Generator().manual_seed(rows)
    start = torch.randn(rows, small.predictor.hidden, generator=generator).to(device, half)
    first = torch.randint(small.codebook, (rows,), generator=generator).to(device)
    noise = torch.rand(rows, small.groups - 1, generator=generator).to(device)
    candidates = candidates_on_device(rows, small.codebook, 7, 0.8, device)
    # From the first pass on, from none on, and from the first pass alone, which has two positions of each row.
    (codes, logits), *others = [
        GpuCodePredictor(weights, table, small.predictor, small.groups, rows, library_rows=least)._codes_and_logits(
            start, first, candidates, noise
        )
        for least in (1, 100, 2 * rows)
    ]
    for other_codes, other_logits in others:
        # Logits that are nearly equal may be drawn otherwise, and then the next ones are others.
        same = (other_codes[:, 0] == codes[:, 0]).tolist()
        assert sum(same) > rows / 2
        assert torch.allclose(other_logits[same], logits[same], atol=0.05)
        assert logits.std() > 0.2


@pytest.mark.parametrize(("columns", "sum_columns"), [(8, 8), (16, 8), (32, 16)])
def test_sums_of_squares_have_their_blocks_in_any_tile(
    checkpoint: TalkerCheckpoint, device: torch.device, monkeypatch: pytest.MonkeyPatch, columns: int, sum_columns: int
) -> None:
    monkeypatch.setattr(served, "gemm_tile", lambda *_, **__: ProductTile(16, columns, 32, 4, 2))
    half = torch.bfloat16 if device.type == "cuda" else torch.float16
    small, height = small_checkpoint(checkpoint, hidden=64), 20
    weights = {name: tensor.to(device, half) for name, tensor in small_weights(small).items()}
    table = weights["talker.model.codec_embedding.weight"]
    gpu = GpuCodePredictor(weights, table, small.predictor, small.groups, height, sum_columns=sum_columns)
    weight = gpu._layers[0].out
    generator = torch.Generator().manual_seed(columns)
    x = torch.randn(height, small.predictor.hidden, generator=generator).to(device, half)
    source = torch.randn(height, weight.shape[1], generator=generator).to(device, half)
    gpu._start_pass(x)
    gpu._linear(source, weight, gpu._x[:height], Epilogue.ADD)
    expected = x.float() + source.float() @ weight.float().t()
    squares = expected.square().view(height, -1, sum_columns).sum(2)
    assert torch.allclose(gpu._residual[:height], expected, atol=0.02)
    assert torch.allclose(gpu._sum_sq[:height], squares, rtol=0.02)


@pytest.mark.parametrize("height", [1, 3, 16, 17, 65, 130])
@pytest.mark.parametrize("epilogue", list(Epilogue), ids=lambda epilogue: epilogue.name)
def test_products_of_any_number_of_rows_equal_torch(
    checkpoint: TalkerCheckpoint, device: torch.device, height: int, epilogue: Epilogue
) -> None:
    """In half precision, which `skinny_gemm` supports; with every input and epilogue."""
    # Triton's interpreter does not support products of bfloat16.
    half = torch.bfloat16 if device.type == "cuda" else torch.float16
    small = small_checkpoint(checkpoint)
    weights = {name: tensor.to(device, half) for name, tensor in small_weights(small).items()}
    table = weights["talker.model.codec_embedding.weight"]
    gpu = GpuCodePredictor(weights, table, small.predictor, small.groups, height)
    size, layer = small.predictor, gpu._layers[0]
    generator = torch.Generator().manual_seed(height)
    x = torch.randn(height, size.hidden, generator=generator).to(device, half)
    gpu._start_pass(x)
    if epilogue == Epilogue.ADD:
        weight = layer.out
        source = torch.randn(height, weight.shape[1], generator=generator).to(device, half)
        gpu._linear(source, weight, gpu._x[:height], epilogue)
        expected = x.float() + source.float() @ weight.float().t()
        assert torch.allclose(gpu._residual[:height], expected, atol=0.02)
        assert torch.allclose(gpu._sum_sq[:height].sum(1), expected.square().sum(1), rtol=0.02)
        product: Tensor = gpu._x[:height]
    else:
        weight = layer.gate_up if epilogue == Epilogue.SWIGLU else layer.qkv
        normed = x.float() * torch.rsqrt(x.float().square().mean(1, keepdim=True) + size.norm_eps)
        expected = normed @ weight.float().t()
        if epilogue == Epilogue.SWIGLU:
            gate, up = expected.chunk(2, 1)
            expected = torch.nn.functional.silu(gate) * up
        product = torch.full_like(expected, torch.nan).to(half)
        gpu._linear(gpu._x[:height], weight, product, epilogue, norm=True)
    assert torch.allclose(product.float(), expected, atol=0.05)
