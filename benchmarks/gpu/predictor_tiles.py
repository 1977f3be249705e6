"""Finds tiles of the code predictor's products on this GPU.

`python -m voxgate.benchmarks.gpu.predictor_tiles CHECKPOINT [SUM_COLUMNS]`. For each number of rows of MEASURED it
replaces one tile of `talker/cuda/tiles.py` at a time, and keeps what makes a part of a frame's chain of kernels
shorter. Prints the tiles found, and the times of whole frames by rows: with the tiles in the file, with those found,
and with the matrix library's products. SUM_COLUMNS, by default as in the file, is the least number of columns that a
program adds to the residual stream: 8 tries narrower tiles, for which each norm reads more sums.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits, ProductTile
from voxgate.pipeline.cuda.chip import chip_limits
from voxgate.pipeline.talker.cuda.tiles import NARROW, SHALLOW, SUM_COLUMNS, Epilogue, gemm_tile

from .parts import graph_ms

MEASURED = (32, 64, 128)
"""Rows up to which a tile of the tables is used."""
FRAME_ROWS = (17, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512)
GROUPS = 3
"""Groups of the part of a frame by which tiles are compared."""
GAIN = 0.995
"""A tile must shorten the time to less than this share."""
ADD_COLUMNS, OTHER_COLUMNS = (8, 16, 32), (16, 32, 64, 128)
"""Columns of a program that are tried for products that add to the residual stream, and for others."""
PROGRAMS = range(48, 529)
"""Programs of a product that are tried: a Hopper has 132 multiprocessors."""
TUNE_S = 25.0
"""Limit for each number of rows."""
NEVER = 1 << 30

Product = tuple[Epilogue, bool]
"""As the keys of the tables: the epilogue, and whether the product is wide (STORE) or deep (ADD)."""
Choice = dict[Product, ProductTile]


def product_of(epilogue: Epilogue, inner: int, width: int) -> Product:
    return epilogue, width > NARROW if epilogue is Epilogue.STORE else epilogue is Epilogue.ADD and inner > SHALLOW


def candidates(
    rows: int, width: int, epilogue: Epilogue, chip: ChipLimits, sum_columns: int = SUM_COLUMNS
) -> Iterator[ProductTile]:
    """Tiles to try for a product of `rows` by `width`; `sum_columns`: fewest columns that a program adds to."""
    is_add, matrices = epilogue is Epilogue.ADD, 2 if epilogue is Epilogue.SWIGLU else 1
    for tile_rows in (16, 32, 64, 128):
        for columns in ADD_COLUMNS if is_add else OTHER_COLUMNS:
            programs = math.ceil(rows / tile_rows) * math.ceil(width / columns)
            if tile_rows > rows or programs not in PROGRAMS or (is_add and columns < sum_columns):
                continue
            for span in (64, 128, 256):
                fitting = [
                    tile
                    for stages in (3, 4, 5, 6)
                    if (tile := ProductTile(tile_rows, columns, span, 4, stages)).fitted(chip, 2, matrices) == tile
                ]
                yield from fitting[-1:]
                if len(fitting) > 1:
                    yield fitting[0]


class Tiles:
    """The tiles in use: those of the file, but for what `own` has, by the number of rows up to which it is used."""

    def __init__(self) -> None:
        self.own: dict[int, Choice] = {rows: {} for rows in MEASURED}
        self.sizes: dict[Product, tuple[int, int]] = {}
        """Inner width and width of each product that was launched."""

    def __call__(
        self, rows: int, inner: int, width: int, epilogue: Epilogue, chip: ChipLimits, *, exact: bool
    ) -> ProductTile:
        """As `gemm_tile`."""
        product = product_of(epilogue, inner, width)
        self.sizes[product] = inner, width
        bound = next((bound for bound in MEASURED if rows <= bound), None)
        own = {} if bound is None else self.own[bound]
        return own.get(product) or gemm_tile(rows, inner, width, epilogue, chip, exact=exact)


def tune(
    frames: Callable[[object], Tensor], tiles: Tiles, rows: int, sum_columns: int, report: Callable[[str], None]
) -> None:
    """Puts into `tiles` what makes `frames`, which computes codes of `rows` rows, faster; ends after TUNE_S."""
    chip, own, began_s = chip_limits(), tiles.own[rows], time.monotonic()
    best_ms = graph_ms(partial(frames, None))
    for product, (_, width) in sorted(tiles.sizes.items()):
        before_ms, kept = best_ms, own.get(product)
        for tile in candidates(rows, width, product[0], chip, sum_columns):
            if time.monotonic() - began_s > TUNE_S:
                break
            own[product] = tile
            try:
                ms = graph_ms(partial(frames, None))
            except Exception as error:  # Triton refuses some tiles; the others are still to be measured
                report(f"{rows} rows, {product}, {tile}: {type(error).__name__}")
                ms = math.inf
            if ms < best_ms * GAIN:
                best_ms, kept = ms, tile
        if kept is None:
            own.pop(product, None)
        else:
            own[product] = kept
            report(f"{rows} rows, {product[0].name}, {product[1]}: {kept}, {before_ms:.3f} -> {best_ms:.3f} ms")


def compile_candidates(folder: Path, sum_columns: int) -> None:
    """Compiles every candidate in several processes; launches nothing, and needs no GPU but its limits."""
    from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
    from voxgate.pipeline.checkpoint.weights import PREFIX, tensor_shapes
    from voxgate.pipeline.cuda.chip import chip_of_driver
    from voxgate.pipeline.cuda.kernel_compiler import compile_all, noted_launches
    from voxgate.pipeline.talker.cuda.predictor import predictor as served
    from voxgate.pipeline.talker.reference.sampling import Candidates

    checkpoint, chip = load_checkpoint(folder), chip_of_driver()
    with noted_launches(chip.capability) as noted, torch.device("meta"), torch.inference_mode():
        weights = {
            PREFIX + name: torch.empty(*shape, dtype=torch.bfloat16)
            for name, shape in tensor_shapes(checkpoint).items()
        }
        first, one_layer = weights["talker.model.codec_embedding.weight"], replace(checkpoint.predictor, layers=1)
        predictor = served.GpuCodePredictor(
            weights, first, one_layer, GROUPS, max(MEASURED), chip=chip, library_rows=NEVER, sum_columns=sum_columns
        )

        def frames(rows: int) -> None:
            inverse, top_k = torch.empty(rows, 1), torch.empty(rows, 1, dtype=torch.int64)
            greedy, ids = torch.empty(rows, dtype=torch.bool), torch.empty(rows, dtype=torch.int64)
            options = Candidates(inverse, greedy, top_k, inverse, checkpoint.codebook)
            hidden = torch.empty(rows, checkpoint.talker.hidden, dtype=torch.bfloat16)
            predictor(hidden, ids, options, torch.empty(rows, GROUPS - 1))

        tiles = Tiles()
        with patch.object(served, "gemm_tile", tiles):
            for rows, own in tiles.own.items():
                frames(rows)
                for product, (_, width) in sorted(tiles.sizes.items()):
                    for tile in candidates(rows, width, product[0], chip, sum_columns):
                        own[product] = tile
                        frames(rows)
                    own.pop(product, None)
    print(compile_all(list(noted.values())), file=sys.stderr)


def main(folder: Path, sum_columns: int) -> None:
    """Compiles, measures and prints."""
    command = [sys.executable, "-m", f"{__package__}.predictor_tiles", str(folder), str(sum_columns), "compile"]
    subprocess.run(command, check=True)
    from voxgate.pipeline.talker.cuda.predictor import predictor as served

    from .predictor import LoadedPredictor

    def report(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    tiles, times = Tiles(), {}
    with torch.inference_mode(), patch.object(served, "gemm_tile", tiles):
        load = partial(LoadedPredictor.load, folder, persistent_predictor=False, sum_columns=sum_columns)
        short = load(max(MEASURED), GROUPS, library_rows=NEVER)
        short.frames(max(MEASURED))(None)
        for rows in MEASURED:
            tune(short.frames(rows), tiles, rows, sum_columns, report)
        found = tiles.own
        for name, own, least in (("file", {}, NEVER), ("found", found, NEVER), ("library", found, 1)):
            tiles.own = {rows: own.get(rows, {}) for rows in MEASURED}
            whole = load(max(FRAME_ROWS), library_rows=least)
            times[name] = {rows: graph_ms(partial(whole.frames(rows), None)) for rows in FRAME_ROWS}
            report(f"{name}: {times[name]}")
    chosen = {
        f"{product[0].name}, {product[1]}, {rows} rows": str(tile)
        for rows, own in found.items()
        for product, tile in own.items()
    }
    print(json.dumps({"sum_columns": sum_columns, "tiles": chosen, "frame_ms": times}))


if __name__ == "__main__":
    run = compile_candidates if sys.argv[3:] == ["compile"] else main
    run(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else SUM_COLUMNS)
