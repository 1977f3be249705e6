"""The products of few rows with a layer's matrices, whose weights are under way before the rows are known.

`csrc/streamed_product.cu` starts while the kernels before it run. The matrix library's products read their first
weights only when those have ended, four times a layer, and so leave the memory unused for half of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ...checkpoint.checkpoint import TransformerSize
from ...cuda.fast_paths import FastPath
from ...cuda.nvrtc import CudaKernel, KernelSource, Launch, pack_arguments
from ...cuda.self_test import RandomInputs, accelerated, is_close
from .backbone_kernels import LayerWeights
from .tiles import PRODUCT_TILES, Epilogue, StreamedTile

SOURCE = Path(__file__).parent / "csrc/streamed_product.cu"
MOST_ROWS = max(PRODUCT_TILES)
BLOCKS = 128
"""Of a launch, for the 132 multiprocessors of an H100 or H200."""
WARPS, LEAST_WARPS = 8, 4
"""Warps of a block, which divide its tiles among them."""
STEP_GROUPS = 2
"""A lane copies its part of this many times 32 of the depth at once."""
FRAGMENT_BYTES = 512
"""What a matrix instruction makes of 16 lines and 8 rows, in float32."""
SUM_COLUMNS = 16
"""Channels of the residual stream whose squares are summed as one part."""
TOLERANCE = 0.02
"""Largest relative difference of the self-test: bfloat16 rounds rows and results by 0.2 % at most."""


@dataclass(frozen=True, slots=True)
class ProductShape:
    """A product of up to `rows` rows with a matrix [lines, depth]; `hidden`: channels of the residual stream."""

    depth: int
    lines: int
    epilogue: Epilogue
    hidden: int
    rows: int
    tile: StreamedTile
    blocks: int = BLOCKS

    @property
    def tiles(self) -> int:
        """Tiles of 16 lines that a cluster computes."""
        return self.lines // 16 * self.tile.ranks // self.blocks

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return math.gcd(self.tiles, WARPS)

    @property
    def fits(self) -> bool:
        """Whether the kernel can divide depth, lines and sums evenly."""
        ranks, fragments = self.tile.ranks, self.tiles * (self.rows // 8)
        return (
            self.depth % (ranks * 32 * STEP_GROUPS) == 0
            and self.lines * ranks % (16 * self.blocks) == 0
            and self.tiles >= self.warps >= LEAST_WARPS
            and fragments % ranks == 0
            and (self.epilogue is not Epilogue.ADD or fragments // ranks <= self.warps)
            and (sums := self.hidden // SUM_COLUMNS) >= 32
            and sums & (sums - 1) == 0  # Triton's ranges are powers of two
            and self.hidden % SUM_COLUMNS == 0
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: ring, rows, sums of its cluster, scales and a barrier."""
        groups, row_blocks = self.depth // self.tile.ranks // 32, self.rows // 8
        steps = min(self.tile.stages, self.tiles // self.warps * groups // STEP_GROUPS)
        fragments = 2 * steps * self.warps * STEP_GROUPS + (groups + self.tiles) * row_blocks
        return FRAGMENT_BYTES * fragments + 4 * self.rows + 16

    def source(self) -> KernelSource:
        """The kernel."""
        macros = {
            "DEPTH": self.depth, "LINES": self.lines, "EPILOGUE": int(self.epilogue),
            "SUMS": self.hidden // SUM_COLUMNS, "ROW_BLOCKS": self.rows // 8, "RANKS": self.tile.ranks,
            "STAGES": self.tile.stages, "STEP_GROUPS": STEP_GROUPS, "WARPS": self.warps, "LOAD_WARPS": 0,
            "BLOCKS": self.blocks, "SHARED": self.shared_bytes,
        }  # fmt: skip  # one mapping
        return KernelSource(SOURCE, macros)


ProductShapes = tuple[ProductShape, ProductShape, ProductShape, ProductShape]
"""Of a layer: queries, keys and values; the attention's output; gates; and what goes back from them."""


def product_shapes(size: TransformerSize, blocks: int = BLOCKS) -> dict[int, ProductShapes]:
    """The products of a layer by the most rows that they are compiled for, of those that fit a model of this size."""
    queries, keys, hidden = size.heads * size.head_dim, size.kv_heads * size.head_dim, size.hidden

    def of(rows: int) -> ProductShapes:
        qkv, out, gate_up, down = PRODUCT_TILES[rows]
        return (
            ProductShape(hidden, queries + 2 * keys, Epilogue.STORE, hidden, rows, qkv, blocks),
            ProductShape(queries, hidden, Epilogue.ADD, hidden, rows, out, blocks),
            ProductShape(hidden, 2 * size.intermediate, Epilogue.SWIGLU, hidden, rows, gate_up, blocks),
            ProductShape(size.intermediate, hidden, Epilogue.ADD, hidden, rows, down, blocks),
        )

    shapes = {rows: of(rows) for rows in PRODUCT_TILES}
    return {rows: own for rows, own in shapes.items() if all(shape.fits for shape in own)}


def unsupported(size: TransformerSize, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot compute a model of this size; None where they can."""
    fits = MOST_ROWS in product_shapes(size) and dtype is torch.bfloat16
    return None if fits else "the model has another size or precision"


class StreamedProducts:
    """The products of a layer with up to MOST_ROWS rows, and the residual stream. Calls share the buffers.

    `residual`: float32 [MOST_ROWS, hidden]; `x`: the same, rounded; `sum_sq`: parts of the sums of its squares;
    `attended`: what `add_output_and_mlp` begins with.
    """

    def __init__(
        self,
        size: TransformerSize,
        device: torch.device,
        launches: Callable[[ProductShape], Launch] | None = None,
        *,
        blocks: int = BLOCKS,
    ) -> None:
        """`launches`: used instead of compiling the kernels. Raises EngineError where that fails."""

        def compiled(shape: ProductShape) -> Launch:
            return CudaKernel(shape.source(), shape.shared_bytes, pdl=True).launch

        def rows(width: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
            return torch.empty(MOST_ROWS, width, dtype=dtype, device=device)

        self._size = size
        self._launches: Mapping[int, list[tuple[ProductShape, Launch]]] = {
            most: [(shape, (launches or compiled)(shape)) for shape in shapes]
            for most, shapes in product_shapes(size, blocks).items()
        }
        self.residual, self.x = rows(size.hidden, torch.float32), rows(size.hidden)
        self.sum_sq = rows(size.hidden // SUM_COLUMNS, torch.float32)
        self.attended, self._inner = rows(size.heads * size.head_dim), rows(size.intermediate)
        self._queries = rows((size.heads + 2 * size.kv_heads) * size.head_dim)

    def queries_keys_values(self, layer: LayerWeights, count: int) -> Tensor:
        """[count, (heads + 2 * kv_heads) * head_dim], valid until the next call."""
        self._run(0, layer.qkv, self.x, self._queries, count)
        return self._queries[:count]

    def add_output_and_mlp(self, layer: LayerWeights, count: int) -> None:
        """Add a layer's attention output, from `attended`, and then its MLP to the residual stream."""
        self._run(1, layer.out, self.attended, self.x, count)
        self._run(2, layer.gate_up, self.x, self._inner, count)
        self._run(3, layer.down, self._inner, self.x, count)

    def _run(self, number: int, matrix: Tensor, x: Tensor, out: Tensor, count: int) -> None:
        shape, launch = self._launches[next(most for most in self._launches if count <= most)][number]
        params = pack_arguments(matrix, x, out, self.residual, self.sum_sq, count, self._size.norm_eps)
        launch(shape.blocks, 32 * shape.warps, params)


def streamed_products_for(layer: LayerWeights, size: TransformerSize, chip: ChipLimits) -> StreamedProducts | None:
    """`StreamedProducts` for a model on the current GPU; None where it cannot have them or they fail their self-test.

    `layer`: any of the model.
    """
    device = layer.qkv.device
    return accelerated(
        FastPath.PRODUCTS,
        partial(StreamedProducts, size, device),
        lambda products: self_test(products, layer, size),
        unavailable=FastPath.PRODUCTS.missing(chip) or unsupported(size, layer.qkv.dtype),
    )


def self_test(products: StreamedProducts, layer: LayerWeights, size: TransformerSize) -> bool:
    """Whether a layer's products are what PyTorch computes in float32, in each compiled size; other rows must stay."""
    return all(_equals_torch(products, layer, size, most - 1) for most in PRODUCT_TILES)


def _equals_torch(products: StreamedProducts, layer: LayerWeights, size: TransformerSize, count: int) -> bool:
    inputs, device = RandomInputs(count), products.x.device
    x = inputs.normal(count, size.hidden).to(device) * 3
    attended = inputs.normal(count, size.heads * size.head_dim).to(device).bfloat16()
    for buffer in (products.residual, products.x, products.sum_sq, products.attended):
        buffer.fill_(torch.nan)
    products.residual[:count], products.x[:count], products.attended[:count] = x, x.bfloat16(), attended
    products.sum_sq[:count] = _square_sums(x)

    def normed(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + size.norm_eps)

    same = is_close(products.queries_keys_values(layer, count), normed(x) @ layer.qkv.float().t(), TOLERANCE)
    products.add_output_and_mlp(layer, count)
    change = attended.float() @ layer.out.float().t()
    gate, up = (normed(x + change) @ layer.gate_up.float().t()).chunk(2, 1)
    change += (F.silu(gate) * up) @ layer.down.float().t()
    residual, others = products.residual[:count], products.residual[count:]
    return (
        same
        and is_close(residual - x, change, TOLERANCE)
        and is_close(products.x[:count], residual, TOLERANCE)
        and is_close(products.sum_sq[:count], _square_sums(residual), TOLERANCE)
        and bool(others.isnan().all())
    )


def _square_sums(x: Tensor) -> Tensor:
    return x.square().view(len(x), -1, SUM_COLUMNS).sum(-1)
