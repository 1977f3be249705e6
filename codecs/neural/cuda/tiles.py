"""Tiles of matrix products on a GPU: what fits on a chip, and the tiles of the codec's convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

_BARRIERS = 64
"""Bytes beside the buffers of a product that reads them asynchronously."""


@dataclass(frozen=True, slots=True)
class ChipLimits:
    """What the kernels have to know of a GPU.

    `capability`: CUDA compute capability, major and minor. `shared_bytes`: largest shared memory of a block.
    """

    capability: tuple[int, int]
    shared_bytes: int

    @property
    def has_early_launch(self) -> bool:
        """Whether a kernel may start while its predecessor runs (programmatic dependent launch): from Hopper on."""
        return self.capability >= (9, 0)

    @property
    def is_hopper(self) -> bool:
        """Whether the CUDA C++ kernels written for sm_90a run, which no later chip executes."""
        return self.capability[0] == 9

    @property
    def has_asynchronous_products(self) -> bool:
        """Whether products of 64 rows read shared memory asynchronously: Hopper and Blackwell of data centres."""
        return self.capability[0] in (9, 10, 11)


ANY_CHIP = ChipLimits((0, 0), 1 << 30)
"""For Triton's interpreter, which has no limits."""


@dataclass(frozen=True, slots=True)
class ProductTile:
    """A program of a product: `rows` by `columns`, `span` of the depth at a time, its `warps` and pipeline `stages`."""

    rows: int
    columns: int
    span: int
    warps: int
    stages: int

    def shared_bytes(self, chip: ChipLimits, number_bytes: int, matrices: int = 1) -> int:
        """Shared memory of a program whose numbers have `number_bytes`, with `matrices` right operands."""
        asynchronous = chip.has_asynchronous_products and self.rows >= 64
        buffers = self.stages if asynchronous else self.stages - 1
        numbers = (self.rows + matrices * self.columns) * self.span
        return max(buffers, 1) * numbers * number_bytes + (_BARRIERS if asynchronous else 0)

    def fitted(self, chip: ChipLimits, number_bytes: int, matrices: int = 1) -> ProductTile:
        """The tile with as many stages, and then as much of the depth at a time, as the chip's shared memory holds.

        Neither changes the order in which a product adds, so the results are equal bit by bit.
        """
        tile = self
        while tile.shared_bytes(chip, number_bytes, matrices) > chip.shared_bytes:
            if tile.stages > 2:
                tile = replace(tile, stages=tile.stages - 1)
            elif tile.span > 16:
                tile = replace(tile, span=tile.span // 2)
            else:
                break
        return tile


TileTable = Sequence[tuple[float, ProductTile]]
"""Tiles of one product by the number of rows up to which each is used, ascending; the last one has no bound."""


def tile_for(table: TileTable, rows: int) -> ProductTile:
    """The tile of a product with `rows` rows."""
    return next(tile for bound, tile in table if rows <= bound)


LARGE_LINES = 2048
"""Output lines from which a convolution has large tiles: enough tiles remain to keep every multiprocessor busy."""
LARGE_OUTPUTS = 1 << 21
"""The same for lines times columns."""
FEW_LINES = 64
"""Lines up to which a tile has the fewest rows of a matrix instruction."""
FEW_TMA_LINES = 256
"""Output lines up to which tiles of 16 columns, loaded by the accelerator, are faster than pointers; with more, too
many programs read the same lines."""
MANY_LINES = 16_384
"""Output lines from which a convolution of several taps and stride 1, loaded by the accelerator, has tiles of 256."""


@dataclass(frozen=True, slots=True)
class ConvTile:
    """The tile of a convolution; `by_tma`: whether the chip's tensor memory accelerator loads its operands."""

    tile: ProductTile
    by_tma: bool


def conv_tile(
    inputs: int,
    taps: int,
    stride: int,
    width: int,
    lines: int,
    chip: ChipLimits,
    number_bytes: int,
    *,
    tma: bool = True,
) -> ConvTile:
    """The tile of a convolution from `inputs` to `width` columns, of numbers of `number_bytes`.

    The fastest on an H200 with 1, 32 and 128 streams; with the tensor memory accelerator, which `tma` allows, on an
    H200 with 1 and 4, and on an H100 with 256.
    """
    few = lines < LARGE_LINES and lines * width < LARGE_OUTPUTS
    # The accelerator reads whole slices of the channels, and lines of a multiple of 16 bytes.
    by_tma = tma and chip.is_hopper and number_bytes == 2 and inputs % 64 == 0 and width % 8 == 0
    if by_tma and few:
        # Pointers are as fast but where a product is deep, and then where its lines are fewest.
        by_tma = stride == 1 and taps > 1 and inputs % 128 == 0 and lines <= FEW_TMA_LINES
    if by_tma:
        tile = _tma_tile(inputs, taps, stride, lines, few=few)
    else:
        tile = _pointer_tile(inputs, taps, stride, width, lines, few=few)
    return ConvTile(tile.fitted(chip, number_bytes), by_tma)


def _tma_tile(inputs: int, taps: int, stride: int, lines: int, *, few: bool) -> ProductTile:
    if few:
        return ProductTile(16 if lines <= FEW_LINES else 64, 16, 128 if inputs % 256 else 256, 4, 4)
    if taps == 1:
        return ProductTile(128, 64, 64, 4, 3)
    if stride > 1:
        return ProductTile(128, 128, 64, 4, 3)
    return ProductTile(256, 128, 64, 8, 4) if lines >= MANY_LINES else ProductTile(128, 128, 64, 4, 4)


def _pointer_tile(inputs: int, taps: int, stride: int, width: int, lines: int, *, few: bool) -> ProductTile:
    whole = inputs % 64 == 0
    span = 64 if whole else 32
    if few:
        return ProductTile(16 if lines <= FEW_LINES else 64, 32, 2 * span, 4, 4)
    if taps == 1:
        # Limited by memory bandwidth, not by products.
        return ProductTile(64, 64, 64, 4, 3) if whole else ProductTile(128, 32, 32, 4, 4)
    if stride > 1:
        return ProductTile(64, 128, span, 4, 3 if whole else 4)
    if width % 128 == 0 and lines > 2 * LARGE_LINES:
        return ProductTile(128, 128, 64, 4, 3)
    return ProductTile(128, 64, 64, 4, 3) if whole else ProductTile(128, 128, 32, 4, 4)
