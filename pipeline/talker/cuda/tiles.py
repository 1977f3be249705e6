"""The tiles of the talker's kernels: one table, measured on an H200, and fitted to the shared memory of other chips.

Free of Triton, so that tests without a GPU can check every entry against every chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf

from voxgate.codecs.neural.cuda.tiles import ChipLimits, ProductTile, TileTable, tile_for

COLUMNS = 16
"""Columns of most programs of the predictor that add to the residual stream."""
SKINNY_ROWS = 16
"""Rows up to which `skinny_gemm` is used: the smallest number of rows of a matrix instruction."""
LIBRARY_ROWS = 129
"""Positions of a pass from which the matrix library's products, with kernels of their own for norms and gates, are
used instead of this package's: 3.35 against 3.74 ms for a frame of 160 rows on an H200, 3.64 against 3.69 of 256."""
SWIGLU_SPAN = 1024
"""Channels of a program of `swiglu`."""
NARROW, SHALLOW = 2048, 2048
"""Largest width and largest inner width of the first tables of `_TABLES`."""


class Epilogue(IntEnum):
    """What a product of the code predictor does with its result."""

    STORE = 0
    """Write it."""
    ADD = 1
    """Add it to the residual stream."""
    SWIGLU = 2
    """Write silu(product with the first half of the weights) * product with the second half."""


_EXACT = ProductTile(32, COLUMNS, 32, 4, 2)
"""In float32, which the matrix units do not support."""

_TABLES: dict[tuple[Epilogue, bool], TileTable] = {
    (Epilogue.STORE, False): (
        (32, ProductTile(32, 32, 256, 4, 5)),
        (64, ProductTile(64, 16, 256, 4, 4)),
        (128, ProductTile(64, 32, 128, 4, 5)),
        (inf, ProductTile(64, 64, 128, 4, 5)),
    ),
    (Epilogue.STORE, True): (
        (32, ProductTile(32, 32, 256, 4, 5)),
        (64, ProductTile(64, 32, 128, 4, 5)),
        (128, ProductTile(64, 64, 128, 4, 4)),
        (inf, ProductTile(128, 64, 64, 8, 6)),
    ),
    (Epilogue.ADD, False): (
        (32, ProductTile(32, COLUMNS, 256, 4, 6)),
        (64, ProductTile(64, COLUMNS, 256, 4, 4)),
        (128, ProductTile(64, COLUMNS, 256, 4, 3)),
        (inf, ProductTile(64, COLUMNS, 128, 4, 4)),
    ),
    (Epilogue.ADD, True): (
        (32, ProductTile(32, COLUMNS, 256, 4, 6)),
        (128, ProductTile(64, COLUMNS, 128, 4, 6)),
        (inf, ProductTile(64, COLUMNS, 128, 4, 5)),
    ),
    (Epilogue.SWIGLU, False): (
        (64, ProductTile(64, 32, 128, 4, 4)),
        (128, ProductTile(64, 64, 128, 4, 4)),
        (inf, ProductTile(128, 64, 64, 8, 4)),
    ),
}
"""By epilogue, and whether the product is wide (STORE) or its inner width is deep (ADD)."""

SUM_COLUMNS = min(
    COLUMNS,
    *(tile.columns for (epilogue, _), table in _TABLES.items() if epilogue is Epilogue.ADD for _, tile in table),
)
"""Columns of the residual stream whose squares are summed as one block: as many as the narrowest program adds to."""

_ATTENTION = ((16, (128, 8)), (32, (64, 4)), (64, (32, 2)), (inf, (32, 1)))
"""Measured at 1, 12 and 128 rows; between those, chosen by how many programs run at once."""

_SPLITS = ((16, 8), (48, 4), (96, 2), (inf, 1))
ATTENTION_SPLITS = tuple(sorted({split for _, split in _SPLITS}))
"""Warps of the CUDA C++ attention that divide the cached positions of a row's head among them: as many as an H200 runs
at once, of the eight heads of the published sizes."""


@dataclass(frozen=True, slots=True)
class StreamedTile:
    """How `streamed_product.cu` divides a product: `ranks` blocks of a cluster divide the depth.

    `stages`: copies that a warp has under way.
    """

    ranks: int
    stages: int


PRODUCT_TILES = {
    8: (StreamedTile(4, 5), StreamedTile(8, 4), StreamedTile(4, 4), StreamedTile(8, 5)),
    16: (StreamedTile(4, 4), StreamedTile(8, 3), StreamedTile(4, 4), StreamedTile(8, 4)),
}
"""By the most rows: a layer's products, in the order of `LayerWeights`. More stages leave less room for the kernels
behind, which copy their first weights meanwhile: with twice as many, the layers of 12 rows take 1.47 instead of 1.15 ms
on an H200. Models whose `out` and `down` do not fit the first, as the 0.6B, use the second for all."""


@dataclass(frozen=True, slots=True)
class SkinnyTile:
    """`rows` and `columns` of a program of `skinny_gemm`, whose `warps` divide the inner width among them."""

    rows: int
    columns: int
    warps: int

    def padded_inner(self, inner: int) -> int:
        """The inner width as the kernel computes it: a power of two, at least 16 for each warp."""
        return max(_power_of_2(inner), 16 * self.warps)

    def shared_bytes(self, inner: int) -> int:
        """Shared memory of a program in half precision: its rows, of which a matrix instruction has at least 8.

        With more than 8 warps Triton also passes the columns through it.
        """
        return 2 * self.padded_inner(inner) * max(self.rows, 8, self.columns if self.warps > 8 else 0)


def gemm_tile(rows: int, inner: int, width: int, epilogue: Epilogue, chip: ChipLimits, *, exact: bool) -> ProductTile:
    """The tile of a product of the code predictor; `exact`: in float32."""
    if exact:
        return _EXACT
    second = width > NARROW if epilogue is Epilogue.STORE else epilogue is Epilogue.ADD and inner > SHALLOW
    matrices = 2 if epilogue is Epilogue.SWIGLU else 1
    return tile_for(_TABLES[epilogue, second], rows).fitted(chip, 2, matrices)


def skinny_tile(height: int, inner: int, width: int, chip: ChipLimits) -> SkinnyTile:
    """The tile of a product of at most `SKINNY_ROWS` rows; with fewer rows than `height` where a chip holds no more.

    Fewer warps add in another order: on a chip of 99 KB, products of 9 to 16 rows round otherwise than on larger ones.
    """
    if inner <= 1024:
        columns, warps = (32 if width >= 4096 else COLUMNS), 4
    else:
        columns, warps = COLUMNS, (16 if inner > SHALLOW and height > 8 else 8)
    tile = SkinnyTile(_power_of_2(height), columns, warps)
    if tile.shared_bytes(inner) <= chip.shared_bytes:
        return tile
    return SkinnyTile(min(tile.rows, 8), columns, min(warps, 8))


def attention_tile(rows: int) -> tuple[int, int]:
    """Cached positions that a program of `paged_attention` attends to at a time, and its warps."""
    return next(tile for bound, tile in _ATTENTION if rows <= bound)


def attention_split(rows: int) -> int:
    """The one of `ATTENTION_SPLITS` for a step of `rows` rows."""
    return next(split for bound, split in _SPLITS if rows <= bound)


def _power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()
