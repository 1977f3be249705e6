"""All layers for a few rows, two kernels of our own each: while one waits, the next one's weights are on their way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
from torch import Tensor

from ...checkpoint import TransformerSize
from ...cuda.nvrtc import supported
from ...errors import EngineError
from .backbone_kernels import BatchRows, LayerWeights, init_streamed_residual
from .streamed_kernels import OutMlpQkv, StreamedAttention, fits, layer_tilings, packed

log = logging.getLogger(__name__)

TRIED_LAYERS, TRIED_PAST, TRIED_ROWS, CLOSE = 2, 70, (5, 16, 32), 0.02
"""Layers, positions of past and rows that are tried at the start, and how far from the library's they may be."""
REPEATED = 300
"""How often the same has to come of them: what depends on who is first shows now and then only."""


class StreamedLayers:
    """Layers of up to `max_rows` rows. Not thread-safe: it owns scratch, and a copy of the weights of its own."""

    def __init__(
        self, layers: Sequence[LayerWeights], angles: Tensor, size: TransformerSize, rest: Sequence[OutMlpQkv],
        attend: StreamedAttention, *, pdl: bool = True,
    ) -> None:  # fmt: skip  # one argument list
        """`rest`: each for as many rows as the `eights` of its cut say, fewest first; `angles`: as of `GpuBackbone`."""
        self._layers, self._size, self._rest, self._attend, self._pdl = layers, size, rest, attend, pdl
        cut, like = rest[-1].cut, layers[0].out.detach()
        self.max_rows = 8 * cut.eights
        self._weights = [
            (
                packed(layer.out.detach(), cut),
                packed(layer.gate_up.detach(), cut, halves=True),
                packed(layer.down.detach(), cut, passes=cut.down_passes),
                packed(layer.qkv.detach(), cut),
            )
            for layer in layers
        ]
        self._angles = angles.float().contiguous()
        rows = self.max_rows
        self._x, self._inner = like.new_empty(rows, cut.hidden), like.new_empty(rows, cut.inner)
        self._mixed, self._qkv = like.new_empty(rows, cut.mixed), like.new_empty(rows, cut.qkv)
        self._sum_sq = like.new_empty(rows, cut.sums, dtype=torch.float32)
        self._done = like.new_empty(len(layers), 3, cut.ranks, dtype=torch.int32)

    def __call__(self, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor], residual: Tensor) -> None:
        """`residual`, float32 [n, hidden], becomes what `embedded` [n, hidden] is behind all layers, without a norm.

        `caches`: as of `GpuBackbone`.
        """
        count, eps = len(embedded), self._size.norm_eps
        rest = next(rest for rest in self._rest if count <= 8 * rest.cut.eights)
        x, mixed, inner, qkv = self._x[:count], self._mixed[:count], self._inner[:count], self._qkv[:count]
        init_streamed_residual[(count,)](
            embedded, x, residual, self._sum_sq, self._done, rest.cut.hidden, self._done.numel(),
            SPAN=triton.next_power_of_2(rest.cut.hidden), SUMS=rest.cut.sums,
            COUNTS=triton.next_power_of_2(self._done.numel()), PDL=self._pdl, launch_pdl=self._pdl,
        )  # fmt: skip  # one argument list
        rest(None, None, None, self._weights[0][3], mixed, x, inner, qkv, residual, self._sum_sq, self._done[0], eps)
        for number, (layer, (out, gate_up, down, _), cache) in enumerate(
            zip(self._layers, self._weights, caches, strict=True)
        ):
            self._attend(
                qkv, layer.q_norm, layer.k_norm, self._angles, cache, rows.pages, rows.starts, rows.positions,
                rows.places, mixed, eps,
            )  # fmt: skip  # one argument list
            following = self._weights[number + 1][3] if number + 1 < len(self._weights) else None
            rest(
                out, gate_up, down, following, mixed, x, inner, qkv, residual, self._sum_sq, self._done[number], eps
            )  # fmt: skip  # one argument list


LayersFunction = Callable[[Tensor, BatchRows, Sequence[Tensor]], Tensor]
"""As `GpuBackbone`."""


def streamed_layers_for(
    layers: Sequence[LayerWeights], angles: Tensor, size: TransformerSize, reference: Callable[[Sequence[LayerWeights]], LayersFunction],
    through: Callable[[Sequence[LayerWeights], StreamedLayers], LayersFunction],
) -> StreamedLayers | None:  # fmt: skip  # one argument list
    """For this model on the current GPU; None where the kernels cannot be had, or do not do what `reference` does.

    `reference` and `through`: some layers as the library multiplies them, and the same by way of the new ones.
    """
    like = layers[0].out
    if not fits(size) or like.dtype is not torch.bfloat16 or not supported():
        return None
    try:
        # The compiler takes seconds for each.
        with ThreadPoolExecutor(initializer=torch.cuda.set_device, initargs=(torch.cuda.current_device(),)) as pool:
            attending = pool.submit(StreamedAttention, size)
            rest = list(pool.map(OutMlpQkv, layer_tilings(size)))
            attend = attending.result()
        some = layers[:TRIED_LAYERS]
        tried = StreamedLayers(some, angles, size, rest, attend)
        if self_test(reference(some), through(some, tried), size, len(some), like.device):
            return StreamedLayers(layers, angles, size, rest, attend)
        reason: object = "their results are not the library's, or not always the same"
    except (EngineError, OSError, torch.OutOfMemoryError) as error:
        reason = error
    log.warning("layers of a few rows are made by the library's products, more slowly: %s", reason)
    return None


def self_test(
    reference: LayersFunction, tried: LayersFunction, size: TransformerSize, layers: int, device: torch.device
) -> bool:
    """Whether both make nearly the same, and leave nearly the same in the cache; `tried` the very same every time."""
    # A model may be loading: there are other defaults of device and dtype then.
    generator = torch.Generator("cpu").manual_seed(0)
    page, pages = 16, TRIED_PAST // 16 + 2
    for count in TRIED_ROWS:

        def random(*shape: int) -> Tensor:
            drawn = torch.randn(*shape, generator=generator, device="cpu", dtype=torch.float32)
            return drawn.bfloat16().to(device)

        def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.arange(torch.Size(shape).numel(), device=device, dtype=dtype).view(shape)

        cache = [random(count * pages, page, size.kv_heads, 2 * size.head_dim) for _ in range(layers)]
        positions = TRIED_PAST - numbers(count)
        table = numbers(count, pages, dtype=torch.int32)
        places = table.long().gather(1, (positions // page)[:, None])[:, 0] * page + positions % page
        rows = BatchRows(numbers(count), positions, places, table, numbers(count + 1, dtype=torch.int32))
        embedded = random(count, size.hidden)
        made = []
        for way in (reference, tried):
            own = [part.clone() for part in cache]
            states = way(embedded, rows, [part.permute(0, 2, 1, 3) for part in own])
            written = torch.cat([part.flatten(0, 1)[places].flatten(1) for part in own], 1)
            made.append([states[:, : size.hidden].float(), written.float()])
        if not all(_close(own, other) for own, other in zip(*made, strict=True)):
            return False
        caches = [part.permute(0, 2, 1, 3) for part in cache]
        alike = [tried(embedded, rows, caches)[:, : size.hidden].float() == made[1][0] for _ in range(REPEATED)]
        if not bool(torch.stack([same.all() for same in alike]).all()):
            return False
    return True


def _close(own: Tensor, other: Tensor) -> bool:
    # Not of what is not a number.
    return bool((own - other).norm() < CLOSE * own.norm()) and bool((other - own).norm() < CLOSE * other.norm())
