"""Tiles that `predictor_tiles.py` tries: they fit on the chip, and those of the file count until one is replaced."""

from __future__ import annotations

import pytest
from voxgate.benchmarks.gpu.predictor_tiles import MEASURED, PROGRAMS, Tiles, candidates
from voxgate.codecs.neural.cuda.tiles import ChipLimits, ProductTile
from voxgate.pipeline.talker.cuda.tiles import COLUMNS, Epilogue, gemm_tile

HOPPER, ADA = ChipLimits((9, 0), 232_448), ChipLimits((8, 9), 101_376)
WIDTHS = {Epilogue.STORE: 4096, Epilogue.ADD: 1024, Epilogue.SWIGLU: 3072}


@pytest.mark.parametrize("sum_columns", [8, 16])
@pytest.mark.parametrize("chip", [HOPPER, ADA])
@pytest.mark.parametrize("rows", MEASURED)
@pytest.mark.parametrize("epilogue", list(Epilogue), ids=lambda epilogue: epilogue.name)
def test_candidates_fit_and_are_different(epilogue: Epilogue, rows: int, chip: ChipLimits, sum_columns: int) -> None:
    tried = list(candidates(rows, WIDTHS[epilogue], epilogue, chip, sum_columns))
    assert 4 <= len(tried) == len(set(tried)) <= 70
    for tile in tried:
        assert tile.shared_bytes(chip, 2, 2 if epilogue is Epilogue.SWIGLU else 1) <= chip.shared_bytes
        assert -(-rows // tile.rows) * -(-WIDTHS[epilogue] // tile.columns) in PROGRAMS
    if epilogue is Epilogue.ADD:
        # The sums of squares of the residual stream are kept by blocks of so many columns.
        assert min(tile.columns for tile in tried) == sum_columns


def test_replaced_tile_counts_for_its_rows_and_product_alone() -> None:
    tiles, own = Tiles(), ProductTile(16, COLUMNS, 128, 4, 3)
    tiles.own[64][Epilogue.ADD, True] = own

    def differs(rows: int, inner: int, epilogue: Epilogue) -> bool:
        launch = (rows, inner, WIDTHS[epilogue], epilogue, HOPPER)
        return tiles(*launch, exact=False) != gemm_tile(*launch, exact=False)

    assert tiles(48, 3072, 1024, Epilogue.ADD, HOPPER, exact=False) == own
    assert not any(differs(*launch) for launch in ((32, 3072, Epilogue.ADD), (48, 2048, Epilogue.ADD)))
    assert not any(differs(rows, 3072, Epilogue.ADD) for rows in (65, 128, 512))
    assert tiles.sizes[Epilogue.ADD, True] == (3072, 1024)
