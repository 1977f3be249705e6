"""The code predictor's frame as one compiled function (section B.6), for processors without an accelerator.

Started one by one, the thousand small operations of a frame cost several times what they compute. Here they are loops
that numba compiles: no operation to start, nothing allocated, the weights of a pass read once for all rows. A sum is
always taken in the same order, so a row's result does not depend, to the last bit, on the rows around it.

All that gets compiled is in this one file: numba's cache only notices changes of the file that holds `_frame`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .native_arrays import PANEL, Array, Odds, Scratch, Sizes, Weights

TILE_ROWS = 4
"""Rows that share one reading of a panel: on AVX2 eight sums, enough to hide how long each addition takes."""

log = logging.getLogger(__name__)


Loop = TypeVar("Loop", bound=Callable[..., Any])


def _compiled(loop: Loop) -> Loop:
    """Compiled when something compiled calls it."""
    return cast(Loop, numba.njit(fastmath={"contract"}, error_model="numpy", boundscheck=False)(loop))


def _reordered(loop: Loop) -> Loop:
    """As `_compiled`, and sums may be split over the lanes of a register; NaN and infinity keep their meaning."""
    options = {"reassoc", "contract", "nsz"}
    return cast(Loop, numba.njit(fastmath=options, error_model="numpy", boundscheck=False)(loop))


def _tile(rows: int) -> Any:
    """`tile(x, row, w, panel, out)`: so many rows of x, from `row` on, times one panel of w.

    Spelled in LLVM's own terms, since no loop in Python keeps so many sums in registers.
    """

    def tile(_typing: Any, x: Any, row: Any, w: Any, panel: Any, out: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, w, out = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2, 4))
            row, panel = arguments[1], arguments[3]
            depth = builder.extract_value(w.shape, 1)
            single, index = ir.FloatType(), depth.type
            lanes = ir.VectorType(single, PANEL)
            zero, every = ir.Constant(lanes, None), ir.Constant(ir.VectorType(ir.IntType(32), PANEL), None)
            kind = ir.FunctionType(lanes, [lanes] * 3)
            fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{PANEL}f32")
            column = builder.mul(panel, index(PANEL))
            here = [builder.add(row, index(r)) for r in range(rows)]
            x_width, out_width = builder.extract_value(x.shape, 1), builder.extract_value(out.shape, 1)
            lines = [builder.gep(x.data, [builder.mul(r, x_width)]) for r in here]
            weights = builder.gep(w.data, [builder.mul(column, depth)])
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(rows)]
            with cgutils.for_range(builder, depth) as loop:
                at = builder.gep(weights, [builder.mul(loop.index, index(PANEL))])
                weight = builder.load(builder.bitcast(at, lanes.as_pointer()), align=4)
                for line, total in zip(lines, sums, strict=True):
                    one = builder.load(builder.gep(line, [loop.index]))
                    spread = builder.insert_element(ir.Constant(lanes, ir.Undefined), one, ir.IntType(32)(0))
                    spread = builder.shuffle_vector(spread, zero, every)
                    builder.store(builder.call(fused, [spread, weight, builder.load(total)]), total)
            # In memory only by name: LLVM keeps the sums in registers until here.
            for r, total in zip(here, sums, strict=True):
                to = builder.gep(out.data, [builder.add(builder.mul(r, out_width), column)])
                builder.store(builder.load(total), builder.bitcast(to, lanes.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.none(x, types.unliteral(row), w, types.unliteral(panel), out), build

    return intrinsic(tile)


_tile_1, _tile_2, _tile_3, _tile_4 = (_tile(rows) for rows in range(1, TILE_ROWS + 1))


@_compiled
def _multiply(x: Array, rows: int, w: Array, out: Array) -> None:
    """out[:rows] = x[:rows] @ w; each element is summed in the order of k, whichever tile it is in."""
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


@_compiled
def _exp(x: np.float32) -> np.float32:
    """e^x to 1e-7 of its value, between e^-87 and e^88 (Cephes' expf; unlike libm's it becomes vector code)."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    x = np.float32(88.0) if x > np.float32(88.0) else x
    # Adding 1.5 * 2^23 rounds to a whole number, which then stands in the lowest bits.
    shifted = x * np.float32(1.44269504088896341) + np.float32(12582912.0)
    whole = shifted - np.float32(12582912.0)
    x = x - whole * np.float32(0.693359375)
    x = x - whole * np.float32(-2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * x + np.float32(1.3981999507e-3)
    y = y * x + np.float32(8.3334519073e-3)
    y = y * x + np.float32(4.1665795894e-2)
    y = y * x + np.float32(1.6666665459e-1)
    y = y * x + np.float32(5.0000001201e-1)
    y = y * (x * x) + x + np.float32(1.0)
    power = (np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)
    return y * np.int32(power).view(np.float32)


@_compiled
def _copy(x: Array, out: Array) -> None:
    # Assigning a slice would compile a check of shapes, whose message takes seconds to compile.
    for i in range(len(out)):
        out[i] = x[i]


@_reordered
def _norm_factor(x: Array, eps: float) -> np.float32:
    total = np.float32(0.0)
    for i in range(len(x)):
        total += x[i] * x[i]
    factor: np.float32 = np.float32(1.0) / np.sqrt(total / np.float32(len(x)) + np.float32(eps))
    return factor


@_reordered
def _norm(x: Array, eps: float, out: Array) -> None:
    factor = _norm_factor(x, eps)
    for i in range(len(x)):
        out[i] = x[i] * factor


@_reordered
def _turn(x: Array, turn: Array, cross: Array, eps: float, out: Array) -> None:
    """Norm and rotary embedding of one head; the angles carry the norm's weights."""
    factor = _norm_factor(x, eps)
    half = len(x) // 2
    for i in range(half):
        low, high = x[i] * factor, x[i + half] * factor
        out[i] = low * turn[i] + high * cross[i]
        out[i + half] = high * turn[i + half] + low * cross[i + half]


@_reordered
def _attend(query: Array, keys: Array, values: Array, scores: Array, out: Array) -> None:
    """Attention of one head over all positions of `keys` and `values`, [positions, head_dim]."""
    positions, width = keys.shape
    for p in range(positions):
        score = np.float32(0.0)
        for i in range(width):
            score += query[i] * keys[p, i]
        scores[p] = score
    most = scores[0]
    for p in range(1, positions):
        most = max(most, scores[p])
    total = np.float32(0.0)
    for p in range(positions):
        scores[p] = _exp(scores[p] - most)
        total += scores[p]
    for i in range(width):
        out[i] = np.float32(0.0)
    for p in range(positions):
        share = scores[p] / total
        for i in range(width):
            out[i] += share * values[p, i]


@_reordered
def _mix(z: Sizes, w: Weights, s: Scratch, layer: int, position: int, row: int) -> None:
    """From the row's projections in `qkv` to what its heads attend to, in `mixed`."""
    d = z.head_dim
    qkv, turn, cross = s.qkv[row], w.turn[layer, position], w.cross[layer, position]
    keys, values = s.keys[layer, row], s.values[layer, row]
    for kv in range(z.kv_heads):
        h = z.heads + kv
        _turn(qkv[h * d : (h + 1) * d], turn[h], cross[h], z.norm_eps, keys[kv, position])
        value = (h + z.kv_heads) * d
        for i in range(d):
            values[kv, position, i] = qkv[value + i]
    for h in range(z.heads):
        query, kv = qkv[h * d : (h + 1) * d], h // (z.heads // z.kv_heads)
        _turn(query, turn[h], cross[h], z.norm_eps, query)
        end = position + 1
        _attend(query, keys[kv, :end], values[kv, :end], s.scores[row], s.mixed[row, h * d : (h + 1) * d])


@_reordered
def _swiglu(gate_up: Array, width: int) -> None:
    """silu(gate) * up, in place of gate."""
    for i in range(width):
        gate = gate_up[i]
        gate_up[i] = gate / (np.float32(1.0) + _exp(-gate)) * gate_up[width + i]


@_reordered
def _add_norm(residual: Array, update: Array, eps: float, x: Array) -> None:
    for i in range(len(residual)):
        residual[i] += update[i]
    _norm(residual, eps, x)


@_reordered
def _step(z: Sizes, w: Weights, s: Scratch, rows: int, position: int) -> None:
    """Take the rows' `residual` through all layers at one position; leaves the final norm in `x`."""
    for row in range(rows):
        _norm(s.residual[row], z.norm_eps, s.x[row])
    for layer in range(len(w.qkv)):
        _multiply(s.x, rows, w.qkv[layer], s.qkv)
        for row in range(rows):
            _mix(z, w, s, layer, position, row)
        _multiply(s.mixed, rows, w.out[layer], s.update)
        for row in range(rows):
            _add_norm(s.residual[row], s.update[row], z.norm_eps, s.x[row])
        _multiply(s.x, rows, w.gate_up[layer], s.gate_up)
        for row in range(rows):
            _swiglu(s.gate_up[row], z.intermediate)
        _multiply(s.gate_up, rows, w.down[layer], s.update)
        for row in range(rows):
            _add_norm(s.residual[row], s.update[row], z.norm_eps, s.x[row])


@_compiled
def _sink(heap: NDArray[np.int64], at: int, end: int) -> None:
    value = heap[at]
    child = 2 * at + 1
    while child < end:
        if child + 1 < end and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value


@_compiled
def _draw(
    logits: Array,
    inverse_temperature: np.float32,
    limit: int,
    top_p: np.float32,
    noise: np.float32,
    order: NDArray[np.int64],
    mass: NDArray[np.float64],
) -> int:
    """As `Candidates.draw`, for one row; of equal logits the lower id comes first."""
    size = len(logits)
    if noise == 0:
        limit = 1
    for i in range(size):
        # Bits of floats, once the negative ones are turned round, are in the order of the numbers.
        bits = np.int64(np.float32(logits[i]).view(np.int32))
        bits ^= (bits >> 31) & 0x7FFFFFFF
        order[i] = bits << 32 | (size - 1 - i)
    for i in range(size // 2 - 1, -1, -1):
        _sink(order, i, size)
    best = logits[size - 1 - (order[0] & 0xFFFFFFFF)]
    total: float = 0.0
    enough: float = np.inf
    if limit == size:
        # The mass of all is known without their order, which is then needed only as far as the draw reaches.
        for i in range(size):
            total += float(_exp((logits[i] - best) * inverse_temperature))
        enough = total * float(top_p if top_p < 1 else noise)
    taken, reached = 0, 0.0
    while taken < limit and not reached > enough:
        # Candidates gather at the far end of the heap, the best one last.
        end = size - 1 - taken
        top, order[0] = order[0], order[end]
        order[end] = top
        _sink(order, 0, end)
        candidate = logits[size - 1 - (top & 0xFFFFFFFF)]
        reached += float(_exp((candidate - best) * inverse_temperature))
        mass[taken] = reached
        taken += 1
    if limit < size:
        total = reached
    chosen = 0
    if top_p < 1:
        # Candidates stay until the mass before them reaches top_p; the first always stays.
        while chosen < taken - 1 and mass[chosen] < top_p * total:
            chosen += 1
        total, taken, chosen = mass[chosen], chosen + 1, 0
    while chosen < taken - 1 and mass[chosen] <= noise * total:
        chosen += 1
    code: int = size - 1 - (order[size - 1 - chosen] & 0xFFFFFFFF)
    return code


def _frame(
    z: Sizes, w: Weights, s: Scratch, hidden: Array, first: NDArray[np.int64], odds: Odds, noise: Array, codes: Any
) -> None:
    """Fill `codes`, int64 [rows, groups - 1]; the hidden state alone is position 0, from which nothing is drawn."""
    rows, groups = codes.shape
    if len(w.projection):
        _multiply(hidden, rows, w.projection, s.update)
    for position in range(groups + 1):
        for row in range(rows):
            if position >= 2:
                _copy(w.inputs[position - 1, codes[row, position - 2]], s.residual[row])
            elif position == 1:
                _copy(w.inputs[0, first[row]], s.residual[row])
            elif len(w.projection):
                for i in range(z.hidden):
                    s.residual[row, i] = s.update[row, i] + w.bias[i]
            else:
                _copy(hidden[row], s.residual[row])
        _step(z, w, s, rows, position)
        if position == 0:
            continue
        group = position - 1
        _multiply(s.x, rows, w.heads[group], s.logits)
        for row in range(rows):
            codes[row, group] = _draw(
                s.logits[row, : z.codebook],
                odds.inverse_temperature[row],
                odds.limit[row],
                odds.top_p[row],
                noise[row, group],
                s.order,
                s.mass,
            )


def compile_frame(*arguments: Any) -> Callable[..., None]:
    """`_frame` compiled for arguments of these types, from the disk where it has been compiled before."""
    try:
        return _compile(arguments, keep=True)
    except (OSError, RuntimeError) as error:
        log.warning("the compiled code predictor cannot be kept for the next start: %s", error)
        return _compile(arguments, keep=False)


def _compile(arguments: tuple[Any, ...], keep: bool) -> Callable[..., None]:
    frame = numba.njit(cache=keep, nogil=True, error_model="numpy", boundscheck=False)(_frame)
    frame.compile(tuple(numba.typeof(argument) for argument in arguments))
    # Arguments of other types are a mistake, not a reason to compile in the middle of a frame.
    frame.disable_compile()
    return cast(Callable[..., None], frame)
