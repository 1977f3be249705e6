"""Tiles of products fit in the shared memory of every chip; `tests/gpu/test_compiled_kernels.py` compiles them."""

from __future__ import annotations

import itertools

import pytest
from voxgate.codecs.neural.cuda.tiles import ANY_CHIP, ChipLimits, ProductTile, conv_tile
from voxgate.pipeline.talker.cuda.tiles import Epilogue, SkinnyTile, attention_tile, gemm_tile, skinny_tile

LARGE, ADA = ChipLimits((9, 0), 232_448), ChipLimits((8, 9), 101_376)
CHIPS = (ChipLimits((8, 0), 166_912), ChipLimits((8, 6), 101_376), ADA, LARGE, ChipLimits((10, 0), 232_448))
CHIPS += (ChipLimits((12, 0), 101_376),)
PREDICTOR_PRODUCTS = (
    (1024, 4096, Epilogue.STORE),
    (1024, 2048, Epilogue.STORE),
    (2048, 1024, Epilogue.ADD),
    (3072, 1024, Epilogue.ADD),
    (1024, 3072, Epilogue.SWIGLU),
)
"""Inner width, width and epilogue of the published predictor's products."""
CONVOLUTIONS = (
    (512, 3, 1, 512),
    (1536, 2, 8, 6144),
    (1024, 7, 1, 1536),
    (768, 7, 1, 768),
    (384, 7, 1, 384),
    (384, 1, 1, 384),
    (96, 7, 1, 96),
    (96, 1, 1, 96),
)
"""Inputs, taps, stride and columns of convolutions of the published codec."""
ROWS = (1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 1824, 3648)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: str(chip.capability))
def test_tiles_fit_every_chip(chip: ChipLimits) -> None:
    for rows, (inner, width, epilogue) in itertools.product(ROWS, PREDICTOR_PRODUCTS):
        matrices = 2 if epilogue is Epilogue.SWIGLU else 1
        tile = gemm_tile(rows, inner, width, epilogue, chip, exact=False)
        assert tile.shared_bytes(chip, 2, matrices) <= chip.shared_bytes
        if rows <= 16:
            assert skinny_tile(rows, inner, width, chip).shared_bytes(inner) <= chip.shared_bytes
    for lines, (inputs, taps, stride, width), number in itertools.product(
        (1, 65, 256, 4000, 9000), CONVOLUTIONS, (2, 4)
    ):
        choice = conv_tile(inputs, taps, stride, width, lines, chip, number)
        assert choice.tile.shared_bytes(chip, number) <= chip.shared_bytes
        # The accelerator reads whole slices of the depth.
        assert not choice.by_tma or (chip.is_hopper and number == 2 and inputs % choice.tile.span == width % 8 == 0)


def test_large_chip_has_the_measured_tiles() -> None:
    for rows, (inner, width, epilogue) in itertools.product(ROWS, PREDICTOR_PRODUCTS):
        measured = gemm_tile(rows, inner, width, epilogue, ANY_CHIP, exact=False)
        assert gemm_tile(rows, inner, width, epilogue, LARGE, exact=False) == measured
    assert gemm_tile(300, 1024, 4096, Epilogue.STORE, LARGE, exact=False) == ProductTile(128, 64, 64, 8, 6)


def test_small_chip_loses_stages_before_it_loses_depth() -> None:
    assert gemm_tile(20, 1024, 4096, Epilogue.STORE, ADA, exact=False) == ProductTile(32, 32, 256, 4, 4)
    assert ProductTile(128, 128, 64, 4, 3).fitted(ChipLimits((8, 6), 20_000), 2) == ProductTile(128, 128, 32, 4, 2)


def test_tile_that_fits_nowhere_ends_at_the_smallest() -> None:
    assert ProductTile(128, 128, 64, 4, 3).fitted(ChipLimits((8, 6), 1000), 2) == ProductTile(128, 128, 16, 4, 2)


def test_deep_product_of_sixteen_rows_is_divided_on_a_small_chip() -> None:
    assert skinny_tile(12, 3072, 1024, LARGE) == SkinnyTile(16, 16, 16)
    assert skinny_tile(12, 3072, 1024, ADA) == SkinnyTile(8, 16, 8)
    assert skinny_tile(5, 3072, 1024, ADA) == skinny_tile(5, 3072, 1024, LARGE) == SkinnyTile(8, 16, 8)


def test_attention_takes_longer_tiles_for_fewer_rows() -> None:
    assert [attention_tile(rows) for rows in (1, 16, 17, 64, 65)] == [(128, 8), (128, 8), (64, 4), (32, 2), (32, 1)]


def test_accelerator_loads_deep_convolutions_of_few_lines() -> None:
    def tile(inputs: int, taps: int, lines: int) -> tuple[bool, int]:
        choice = conv_tile(inputs, taps, 1, inputs, lines, LARGE, 2)
        return choice.by_tma, choice.tile.span

    assert [tile(768, 7, lines) for lines in (1, 256, 257)] == [(True, 256), (True, 256), (False, 128)]
    assert tile(384, 7, 160) == (True, 128)
    assert [tile(*sizes, 160)[0] for sizes in ((192, 7), (768, 1))] == [False, False]
