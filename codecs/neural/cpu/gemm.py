"""Matrix products and convolutions with a matrix in panels; each element is summed in the same order in any batch."""

from __future__ import annotations

from itertools import chain
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .jit import jit
from .panels import PANEL, Array

HAS_AVX512 = bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))
TILE_LINES = 8 if HAS_AVX512 else 6
"""Lines that share one read of their panels.

With AVX-512, eight lines and two panels have 16 of 32 registers as accumulators; with AVX2, six lines and one panel
have 12 of 16. More would not leave registers for the operands.
"""
UNROLL = 4
MIN_PARTIAL_DEPTH = 128
"""From this depth on each tap has a sum of its own: a single sum of thousands of products would lose a digit."""


def _tile(lines: int, panels: int) -> Any:
    """The intrinsic `tile(x, line, taps, tap_lines, depth, w, panel, out, out_line)`.

    It computes `lines` lines, from `out_line` on, and `panels` panels, from `panel` on, of the product in `multiply`.
    Written in LLVM IR, because numba does not keep this many accumulators of a Python loop in registers.
    """

    def tile(
        _typing: Any,
        x: Any,
        line: Any,
        taps: Any,
        tap_lines: Any,
        depth: Any,
        w: Any,
        panel: Any,
        out: Any,
        out_line: Any,
    ) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, w, out = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 5, 7))
            line, taps, tap_lines, depth, panel, out_line = (arguments[i] for i in (1, 2, 3, 4, 6, 8))
            bits, single, index = signature.args[0].dtype.bitwidth, x.data.type.pointee, depth.type
            align = bits // 8
            lanes = ir.VectorType(single, PANEL)
            zero, broadcast = ir.Constant(lanes, None), ir.Constant(ir.VectorType(ir.IntType(32), PANEL), None)
            fma_type = ir.FunctionType(lanes, [lanes] * 3)
            fma = cgutils.get_or_insert_function(builder.module, fma_type, f"llvm.fmuladd.v{PANEL}f{bits}")
            x_width, out_width = builder.extract_value(x.shape, 1), builder.extract_value(out.shape, 1)
            panel_size = builder.mul(builder.extract_value(w.shape, 1), index(PANEL))
            first = [builder.mul(builder.add(line, index(n)), x_width) for n in range(lines)]
            inputs = [builder.gep(x.data, [at]) for at in first]
            weights = [
                builder.gep(w.data, [builder.mul(builder.add(panel, index(n)), panel_size)]) for n in range(panels)
            ]
            sums, totals = (
                [[cgutils.alloca_once_value(builder, zero) for _ in range(panels)] for _ in range(lines)]
                for _ in range(2)
            )

            def add_products(tap_inputs: list[Any], tap_weights: list[Any], k: Any) -> None:
                at = builder.mul(k, index(PANEL))
                columns = [
                    builder.load(builder.bitcast(builder.gep(start, [at]), lanes.as_pointer()), align=align)
                    for start in tap_weights
                ]
                for start, parts in zip(tap_inputs, sums, strict=True):
                    value = builder.load(builder.gep(start, [k]))
                    spread = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.IntType(32)(0))
                    spread = builder.shuffle_vector(spread, zero, broadcast)
                    for column, part in zip(columns, parts, strict=True):
                        builder.store(builder.call(fma, [spread, column, builder.load(part)]), part)

            whole = builder.and_(depth, index(-UNROLL))
            with cgutils.for_range(builder, taps) as loop:
                x_shift = builder.mul(loop.index, builder.mul(tap_lines, x_width))
                w_shift = builder.mul(loop.index, builder.mul(depth, index(PANEL)))
                tap_inputs = [builder.gep(start, [x_shift]) for start in inputs]
                tap_weights = [builder.gep(start, [w_shift]) for start in weights]
                with cgutils.for_range_slice(builder, index(0), whole, index(UNROLL), inc=True) as (k, _):
                    for offset in range(UNROLL):
                        add_products(tap_inputs, tap_weights, builder.add(k, index(offset)))
                with cgutils.for_range_slice(builder, whole, depth, index(1), inc=True) as (k, _):
                    add_products(tap_inputs, tap_weights, k)
                with builder.if_then(builder.icmp_signed(">=", depth, index(MIN_PARTIAL_DEPTH))):
                    for part, total in zip(chain(*sums), chain(*totals), strict=True):
                        builder.store(builder.fadd(builder.load(total), builder.load(part)), total)
                        builder.store(zero, part)
            # LLVM promotes the stack slots to registers: nothing is stored before this loop.
            for number in range(lines):
                to = builder.gep(out.data, [builder.mul(builder.add(out_line, index(number)), out_width)])
                for n in range(panels):
                    at = builder.mul(builder.add(panel, index(n)), index(PANEL))
                    target = builder.bitcast(builder.gep(to, [at]), lanes.as_pointer())
                    result = builder.fadd(builder.load(totals[number][n]), builder.load(sums[number][n]))
                    builder.store(result, target, align=align)
            return context.get_dummy_value()

        numbers = (types.unliteral(number) for number in (line, taps, tap_lines, depth, panel, out_line))
        line, taps, tap_lines, depth, panel, out_line = numbers
        return types.none(x, line, taps, tap_lines, depth, w, panel, out, out_line), build

    return intrinsic(tile)


_one_1, _one_2, _one_4, _one_many = (_tile(lines, 1) for lines in (1, 2, 4, TILE_LINES))
_two_1, _two_2, _two_4, _two_many = (_tile(lines, 2) for lines in (1, 2, 4, TILE_LINES))


@jit
def multiply(x: Array, first: int, lines: int, taps: int, tap_lines: int, depth: int, w: Array, out: Array) -> None:
    """out[i] = sum over taps of x[first + i + tap * tap_lines, :depth] @ w[tap], for i below `lines`.

    With one tap it is a matrix product, with more a convolution whose taps are `tap_lines` lines apart. `w`: panels of
    the matrix [taps * depth, width]. `out` has at least as many columns as the panels.
    """
    panel, panels = 0, w.shape[0]
    if HAS_AVX512:
        while panel + 2 <= panels:
            done = 0
            while done + TILE_LINES <= lines:
                _two_many(x, first + done, taps, tap_lines, depth, w, panel, out, done)
                done += TILE_LINES
            if done + 4 <= lines:
                _two_4(x, first + done, taps, tap_lines, depth, w, panel, out, done)
                done += 4
            if done + 2 <= lines:
                _two_2(x, first + done, taps, tap_lines, depth, w, panel, out, done)
                done += 2
            if done < lines:
                _two_1(x, first + done, taps, tap_lines, depth, w, panel, out, done)
            panel += 2
    while panel < panels:
        done = 0
        while done + TILE_LINES <= lines:
            _one_many(x, first + done, taps, tap_lines, depth, w, panel, out, done)
            done += TILE_LINES
        if done + 4 <= lines:
            _one_4(x, first + done, taps, tap_lines, depth, w, panel, out, done)
            done += 4
        if done + 2 <= lines:
            _one_2(x, first + done, taps, tap_lines, depth, w, panel, out, done)
            done += 2
        if done < lines:
            _one_1(x, first + done, taps, tap_lines, depth, w, panel, out, done)
        panel += 1


@jit
def product(x: Array, lines: int, w: Array, out: Array) -> None:
    """out[:lines] = x[:lines, :depth] @ w, with `w` as panels of a matrix [depth, width]."""
    multiply(x, 0, lines, 1, 0, w.shape[1], w, out)
