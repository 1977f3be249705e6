"""The slot tables as a GPU reads them: in place, in the gateway's memory, over the bus.

A step reads a few dozen bytes of each slot. Copying the tables to the device would cost more, and would need an order
between the copies and the gateway's stores.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...ipc.slot_tables import Field, SlotTables
from ..reference.slot_reader import TableViews

_PORTABLE_AND_MAPPED = 3
"""cudaHostRegisterPortable | cudaHostRegisterMapped."""
_SUCCESSOR = tl.constexpr(int(Field.SUCCESSOR))


def map_tables(tables: SlotTables) -> None:
    """Let kernels read the tables' memory until `unmap_tables`. Raises RuntimeError when CUDA refuses."""
    memory = torch.frombuffer(tables.buffer, dtype=torch.uint8)
    status = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE_AND_MAPPED)
    if int(status) != 0:
        raise RuntimeError(f"CUDA cannot map the slot tables: cudaHostRegister returned {status}")


def unmap_tables(tables: SlotTables) -> None:
    """Undo `map_tables`, after the kernels that read the tables. Raises RuntimeError when CUDA refuses."""
    torch.cuda.synchronize()
    memory = torch.frombuffer(tables.buffer, dtype=torch.uint8)
    status = torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())
    if int(status) != 0:
        raise RuntimeError(f"CUDA cannot unmap the slot tables: cudaHostUnregister returned {status}")


class MappedTables:
    """`SlotReader` over tables that `map_tables` has mapped. Nothing waits; rows that do not exist read as zeros."""

    def __init__(self, views: TableViews) -> None:
        self._views = views

    @property
    def prefix_positions(self) -> int:
        return self._views.prefix.shape[1]

    @property
    def text_positions(self) -> int:
        return self._views.text.shape[1]

    def control(self, slots: Tensor) -> Tensor:
        return _gather(self._views.control, slots)

    def options(self, slots: Tensor) -> Tensor:
        return _gather(self._views.options, slots)

    def prefix(self, slots: Tensor, positions: Tensor) -> Tensor:
        return _gather(self._views.prefix, slots, positions)

    def text(self, slots: Tensor, tokens: Tensor) -> Tensor:
        return _gather(self._views.text, slots, tokens)

    def speaker(self, slots: Tensor, rows: Tensor) -> Tensor:
        # A vector is thousands of bytes, too many to read over the bus for rows that do not need one.
        return _gather(self._views.speaker, torch.where(rows, slots, -1))

    def successor_ids(self, ids: Tensor) -> Tensor:
        control = self._views.control
        out = torch.empty_like(ids)
        _successor_ids[(len(ids),)](ids, control, out, self._views.slots, len(control), control.stride(0), num_warps=1)
        return out

    def any(self, mask: Tensor) -> bool:  # noqa: ARG002  # reading the mask would wait for the device
        return True


def _gather(table: Tensor, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """`table[rows]` or `table[rows, columns]` of a mapped table, on the device; zeros where there is no such row."""
    rows = rows.contiguous()
    columns = None if columns is None else columns.contiguous()
    depth = 1 if columns is None else 2
    shape = table.shape[depth:]
    width = math.prod(shape)
    out = torch.empty((len(rows), *shape), dtype=table.dtype, device=rows.device)
    _gather_rows[(len(rows),)](
        table, rows, rows if columns is None else columns, out, table.shape[0], table.stride(0), table.stride(1),
        WIDTH=width, SPAN=triton.next_power_of_2(width), TWO_INDICES=depth == 2, num_warps=1,
    )  # fmt: skip  # one argument list
    return out


@triton.jit
def _gather_rows(
    table, rows, columns, out, height, row_stride, column_stride,
    WIDTH: tl.constexpr, SPAN: tl.constexpr, TWO_INDICES: tl.constexpr,
):  # fmt: skip  # one argument list
    """Copy WIDTH numbers at an index of `table` to a row of `out`; SPAN: the power of two from WIDTH."""
    at = tl.program_id(0)
    channels = tl.arange(0, SPAN)
    row = tl.load(rows + at)
    start = row * row_stride
    if TWO_INDICES:
        start += tl.load(columns + at) * column_stride
    mask = (channels < WIDTH) & (row >= 0) & (row < height)
    # volatile: the gateway writes concurrently, so a cached copy of an earlier read must not be used.
    values = tl.load(table + start + channels, mask=mask, other=0, volatile=True)
    tl.store(out + at * WIDTH + channels, values, mask=channels < WIDTH)


@triton.jit
def _successor_ids(ids, control, out, first, height, row_stride):
    """`out` is `ids`, with successors in place of rows from `first` on that have one."""
    at = tl.program_id(0)
    slot = tl.load(ids + at)
    row = slot.to(tl.int64)
    # volatile: as in _gather_rows.
    successor = tl.load(
        control + row * row_stride + _SUCCESSOR, mask=(row >= first) & (row < height), other=0, volatile=True
    )
    tl.store(out + at, tl.where(successor > 0, (successor - 1).to(slot.dtype), slot))
