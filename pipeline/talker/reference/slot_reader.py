from __future__ import annotations

from typing import TYPE_CHECKING

from ...ipc.slot_tables import Field

if TYPE_CHECKING:
    from torch import Tensor


def look_up(table: Tensor, *index: Tensor) -> Tensor:
    """`table[index]` of a table that the gateway writes in host memory, for an index and a result on any device.

    On a GPU the table must have been mapped (`gpu_tables.map_tables`); nothing waits then, and slots that do not exist
    are all zeros.
    """
    if index[0].is_cuda:
        # Its compiler is there only where there is a GPU.
        from ..cuda.mapped_tables import look_up_mapped

        return look_up_mapped(table, *index)
    return table[index]


def successor_ids(ids: Tensor, control: Tensor, first: int) -> Tensor:
    """vLLM's tokens, int [n], with each row for prompts, from `first` on, that has an heir in its heir's name.

    `control`: the table's; on a GPU it must have been mapped.
    """
    if ids.is_cuda:
        from ..cuda.mapped_tables import successor_ids_mapped

        return successor_ids_mapped(ids, control, first)
    heirs = control[ids.long().clamp(0, len(control) - 1), Field.SUCCESSOR]
    named = (ids >= first) & (ids < len(control)) & (heirs > 0)
    return ids.where(~named, (heirs - 1).to(ids.dtype))


def any_of(mask: Tensor) -> bool:
    """Whether what `mask` marks is worth a closer look; always on a GPU, where asking would wait for the device."""
    return mask.is_cuda or bool(mask.any())
