"""The slots' tables as a GPU reads them: where they lie, in the gateway's memory, over the bus.

A step looks at a few dozen bytes a slot, so copying tables to the device would cost more than reading them there, and
would need an order between the copies and the gateway's stores.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...ipc.slot_tables import Field, SlotTables

_PORTABLE_AND_MAPPED = 3
_SUCCESSOR = tl.constexpr(int(Field.SUCCESSOR))


def map_tables(tables: SlotTables) -> None:
    """Let kernels read the tables' memory, for the life of this process. Raises RuntimeError when CUDA refuses."""
    memory = torch.frombuffer(tables.buffer, dtype=torch.uint8)
    status = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE_AND_MAPPED)
    if int(status) != 0:
        raise RuntimeError(f"CUDA cannot map the slots' tables (cudaHostRegister: {status})")


@triton.jit
def _gather(table, first, second, out, height, line, step, WIDTH: tl.constexpr, SPAN: tl.constexpr, DEEP: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, SPAN)
    slot = tl.load(first + row)
    at = slot * line
    if DEEP:
        at += tl.load(second + row) * step
    inside = (columns < WIDTH) & (slot >= 0) & (slot < height)
    # The gateway may write meanwhile: what an earlier kernel read must not be taken from a cache.
    values = tl.load(table + at + columns, mask=inside, other=0, volatile=True)
    tl.store(out + row * WIDTH + columns, values, mask=columns < WIDTH)


def look_up_mapped(table: Tensor, slots: Tensor, places: Tensor | None = None) -> Tensor:
    """`table[slots]` or `table[slots, places]` of a mapped table, on the device; zeros where there is no such slot."""
    slots = slots.contiguous()
    places = None if places is None else places.contiguous()
    depth = 1 if places is None else 2
    shape = table.shape[depth:]
    width = math.prod(shape)
    out = torch.empty((len(slots), *shape), dtype=table.dtype, device=slots.device)
    _gather[(len(slots),)](
        table, slots, slots if places is None else places, out, table.shape[0], table.stride(0), table.stride(1),
        WIDTH=width, SPAN=triton.next_power_of_2(width), DEEP=depth == 2, num_warps=1,
    )  # fmt: skip  # one argument list
    return out


@triton.jit
def _successor_ids(ids, control, out, first, rows, line):
    at = tl.program_id(0)
    name = tl.load(ids + at)
    row = name.to(tl.int64)
    # The gateway may write meanwhile: what an earlier kernel read must not be taken from a cache.
    heir = tl.load(control + row * line + _SUCCESSOR, mask=(row >= first) & (row < rows), other=0, volatile=True)
    tl.store(out + at, tl.where(heir > 0, (heir - 1).to(name.dtype), name))


def successor_ids_mapped(ids: Tensor, control: Tensor, first: int) -> Tensor:
    """`tables.successor_ids` on the device, of a mapped table."""
    out = torch.empty_like(ids)
    _successor_ids[(len(ids),)](ids, control, out, first, len(control), control.stride(0), num_warps=1)
    return out
