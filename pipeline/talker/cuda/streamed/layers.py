"""All layers for batches of few rows, two CUDA C++ kernels each, which stream the weights through shared memory.

While one kernel waits for its input, the weights of the next are already being loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ....checkpoint.checkpoint import TransformerSize
from ....cuda.fast_paths import FastPath
from ....cuda.self_test import RandomInputs, accelerated, disabled
from ..backbone_kernels import BatchRows, LayerWeights, init_streamed_residual
from .kernels import OutMlpQkv, StreamedAttention, fits, layer_tilings, packed

TEST_LAYERS, TEST_PAST, TEST_ROWS = 2, 70, (5, 16, 32)
"""Layers, cached positions and batch sizes of the self-test."""
TOLERANCE = 0.02
"""Largest relative difference from the library's layers that the self-test accepts."""
REPETITIONS = 300
"""Repetitions of the self-test that must agree exactly: a race between blocks shows only now and then."""


class StreamedLayers:
    """Layers of up to `max_rows` rows. Not thread-safe: calls share its buffers. Holds its own copy of the weights."""

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        angles: Tensor,
        size: TransformerSize,
        out_mlp_qkv: Sequence[OutMlpQkv],
        attention: StreamedAttention,
        *,
        pdl: bool = True,
    ) -> None:
        """`out_mlp_qkv`: for several batch sizes, ascending; `angles`: as of `GpuBackbone`."""
        self._layers, self._size, self._pdl = layers, size, pdl
        self._out_mlp_qkv, self._attention = out_mlp_qkv, attention
        tiling, like = out_mlp_qkv[-1].tiling, layers[0].out.detach()
        self.max_rows = tiling.max_rows
        self._weights = [
            (
                packed(layer.out.detach(), tiling),
                packed(layer.gate_up.detach(), tiling, gate_up=True),
                packed(layer.down.detach(), tiling, passes=tiling.down_passes),
                packed(layer.qkv.detach(), tiling),
            )
            for layer in layers
        ]
        self._angles = angles.float().contiguous()
        rows = self.max_rows
        self._x, self._inner = like.new_empty(rows, tiling.hidden), like.new_empty(rows, tiling.inner)
        self._attended, self._qkv = like.new_empty(rows, tiling.attended), like.new_empty(rows, tiling.qkv)
        self._sum_sq = like.new_empty(rows, tiling.sums, dtype=torch.float32)
        self._counters = like.new_empty(len(layers), 3, tiling.ranks, dtype=torch.int32)

    def __call__(self, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor], residual: Tensor) -> None:
        """Run `embedded` [n, hidden] through all layers; `residual`, float32 [n, hidden], becomes the result.

        The final norm is not applied. `caches`: as of `GpuBackbone`.
        """
        count, eps = len(embedded), self._size.norm_eps
        run = next(kernel for kernel in self._out_mlp_qkv if count <= kernel.tiling.max_rows)
        x, attended, inner, qkv = self._x[:count], self._attended[:count], self._inner[:count], self._qkv[:count]
        counters = self._counters.numel()
        init_streamed_residual[(count,)](
            embedded, x, residual, self._sum_sq, self._counters, run.tiling.hidden, counters,
            SPAN=triton.next_power_of_2(run.tiling.hidden), SUMS=run.tiling.sums,
            COUNTERS=triton.next_power_of_2(counters), PDL=self._pdl, launch_pdl=self._pdl,
        )  # fmt: skip  # one argument list
        first_qkv = self._weights[0][3]
        run(None, None, None, first_qkv, attended, x, inner, qkv, residual, self._sum_sq, self._counters[0], eps)
        for number, (layer, (out, gate_up, down, _), cache) in enumerate(
            zip(self._layers, self._weights, caches, strict=True)
        ):
            self._attention(
                qkv, layer.q_norm, layer.k_norm, self._angles, cache, rows.pages, rows.starts, rows.positions,
                rows.cache_slots, attended, eps,
            )  # fmt: skip  # one argument list
            next_qkv = self._weights[number + 1][3] if number + 1 < len(self._weights) else None
            run(
                out, gate_up, down, next_qkv, attended, x, inner, qkv, residual, self._sum_sq,
                self._counters[number], eps,
            )  # fmt: skip  # one argument list


LayersFunction = Callable[[Tensor, BatchRows, Sequence[Tensor]], Tensor]
"""Called as `GpuBackbone`."""


def streamed_layers_for(
    layers: Sequence[LayerWeights],
    angles: Tensor,
    size: TransformerSize,
    chip: ChipLimits,
    make: Callable[[Sequence[LayerWeights], StreamedLayers | None], LayersFunction],
) -> StreamedLayers | None:
    """`StreamedLayers` of this model on the current GPU; None where unsupported, or where the self-test fails.

    `make`: a backbone of some layers with the library's products, or with the streamed layers it is given.
    """
    like = layers[0].out
    reason = FastPath.STREAMED_LAYERS.missing(chip)
    if reason is None and not (fits(size) and like.dtype is torch.bfloat16):
        reason = "the model has another size or precision"
    if reason is not None:
        disabled(FastPath.STREAMED_LAYERS, reason, expected=True)
        return None
    some = layers[:TEST_LAYERS]

    def compile_kernels() -> tuple[list[OutMlpQkv], StreamedAttention]:
        # In parallel, because each takes seconds to compile.
        with ThreadPoolExecutor(initializer=torch.cuda.set_device, initargs=(torch.cuda.current_device(),)) as pool:
            attention = pool.submit(StreamedAttention, size)
            return list(pool.map(OutMlpQkv, layer_tilings(size))), attention.result()

    def matches(kernels: tuple[list[OutMlpQkv], StreamedAttention]) -> bool:
        streamed = StreamedLayers(some, angles, size, *kernels)
        return self_test(make(some, None), make(some, streamed), size, len(some), like.device)

    kernels = accelerated(FastPath.STREAMED_LAYERS, compile_kernels, matches)
    if kernels is None:
        return None
    return accelerated(FastPath.STREAMED_LAYERS, lambda: StreamedLayers(layers, angles, size, *kernels))


def self_test(
    reference: LayersFunction, tested: LayersFunction, size: TransformerSize, layers: int, device: torch.device
) -> bool:
    """Whether states and cache of `tested` nearly equal those of `reference`, and repeat exactly."""
    inputs = RandomInputs()
    page, pages = 16, TEST_PAST // 16 + 2
    for count in TEST_ROWS:

        def random(*shape: int) -> Tensor:
            return inputs.normal(*shape).bfloat16().to(device)

        def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.arange(torch.Size(shape).numel(), device=device, dtype=dtype).view(shape)

        cache = [random(count * pages, page, size.kv_heads, 2 * size.head_dim) for _ in range(layers)]
        positions = TEST_PAST - numbers(count)
        table = numbers(count, pages, dtype=torch.int32)
        cache_slots = table.long().gather(1, (positions // page)[:, None])[:, 0] * page + positions % page
        rows = BatchRows(numbers(count), positions, cache_slots, table, numbers(count + 1, dtype=torch.int32))
        embedded = random(count, size.hidden)
        results = []
        for run in (reference, tested):
            own_cache = [part.clone() for part in cache]
            states = run(embedded, rows, [part.permute(0, 2, 1, 3) for part in own_cache])
            written = torch.cat([part.flatten(0, 1)[cache_slots].flatten(1) for part in own_cache], 1)
            results.append([states[:, : size.hidden].float(), written.float()])
        if not all(_close(expected, actual) for expected, actual in zip(*results, strict=True)):
            return False
        caches = [part.permute(0, 2, 1, 3) for part in cache]
        equal = [tested(embedded, rows, caches)[:, : size.hidden].float() == results[1][0] for _ in range(REPETITIONS)]
        if not bool(torch.stack([same.all() for same in equal]).all()):
            return False
    return True


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether the relative difference is small; False where either has NaN."""
    return bool((a - b).norm() < TOLERANCE * a.norm()) and bool((b - a).norm() < TOLERANCE * b.norm())
