"""Rows times a matrix stored in panels (`weights.py`); each element is summed in the same order in any batch."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .jit import jit
from .weights import PANEL, Array

TILE_ROWS = 4
"""Rows that share one read of a panel: eight AVX2 accumulators, enough to hide the latency of the additions."""


def _tile(rows: int) -> Any:
    """The intrinsic `tile(x, row, w, panel, out)`: `rows` rows of x, from `row` on, times one panel of w.

    Written in LLVM IR, because numba does not keep this many accumulators of a Python loop in registers.
    """

    def tile(_typing: Any, x: Any, row: Any, w: Any, panel: Any, out: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, w, out = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2, 4))
            row, panel = arguments[1], arguments[3]
            depth = builder.extract_value(w.shape, 1)
            single, index = ir.FloatType(), depth.type
            lanes = ir.VectorType(single, PANEL)
            zero, broadcast = ir.Constant(lanes, None), ir.Constant(ir.VectorType(ir.IntType(32), PANEL), None)
            fma_type = ir.FunctionType(lanes, [lanes] * 3)
            fma = cgutils.get_or_insert_function(builder.module, fma_type, f"llvm.fmuladd.v{PANEL}f32")
            column = builder.mul(panel, index(PANEL))
            row_numbers = [builder.add(row, index(r)) for r in range(rows)]
            x_width, out_width = builder.extract_value(x.shape, 1), builder.extract_value(out.shape, 1)
            inputs = [builder.gep(x.data, [builder.mul(number, x_width)]) for number in row_numbers]
            weights = builder.gep(w.data, [builder.mul(column, depth)])
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(rows)]
            with cgutils.for_range(builder, depth) as loop:
                weight_at = builder.gep(weights, [builder.mul(loop.index, index(PANEL))])
                weight = builder.load(builder.bitcast(weight_at, lanes.as_pointer()), align=4)
                for line, total in zip(inputs, sums, strict=True):
                    value = builder.load(builder.gep(line, [loop.index]))
                    spread = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.IntType(32)(0))
                    spread = builder.shuffle_vector(spread, zero, broadcast)
                    builder.store(builder.call(fma, [spread, weight, builder.load(total)]), total)
            # LLVM promotes the stack slots to registers: nothing is stored before this loop.
            for number, total in zip(row_numbers, sums, strict=True):
                to = builder.gep(out.data, [builder.add(builder.mul(number, out_width), column)])
                builder.store(builder.load(total), builder.bitcast(to, lanes.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.none(x, types.unliteral(row), w, types.unliteral(panel), out), build

    return intrinsic(tile)


_tile_1, _tile_2, _tile_3, _tile_4 = (_tile(rows) for rows in range(1, TILE_ROWS + 1))


@jit
def multiply(x: Array, rows: int, w: Array, out: Array) -> None:
    """out[:rows] = x[:rows] @ w; every element is summed in the order of k, in whichever tile it is."""
    for panel in range(w.shape[0]):
        row = 0
        while row + TILE_ROWS <= rows:
            _tile_4(x, row, w, panel, out)
            row += TILE_ROWS
        if rows - row == 3:
            _tile_3(x, row, w, panel, out)
        elif rows - row == 2:
            _tile_2(x, row, w, panel, out)
        elif rows - row == 1:
            _tile_1(x, row, w, panel, out)
