"""How a step reads the slot tables that the gateway writes: the interface, and reading in host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...ipc.slot_tables import Field, SlotTables


@dataclass(frozen=True, slots=True)
class TableViews:
    """The shared memory of `SlotTables` as tensors, with its shapes and dtypes; `slots`: rows that generations own.

    Rows from `slots` on hold prefilled prompts.
    """

    control: Tensor
    options: Tensor
    prefix: Tensor
    text: Tensor
    speaker: Tensor
    slots: int

    @classmethod
    def of(cls, tables: SlotTables) -> TableViews:
        return cls(
            control=torch.from_numpy(tables.control),
            options=torch.from_numpy(tables.options),
            prefix=torch.from_numpy(tables.prefix),
            text=torch.from_numpy(tables.text),
            speaker=torch.from_numpy(tables.speaker),
            slots=tables.shape.slots,
        )


class SlotReader(Protocol):
    """Reads rows of the slot tables: `HostTables`, or on a GPU `MappedTables` (`cuda/mapped_tables.py`).

    `slots` and the other indices are int64 [n]; results are on the device of the indices.
    """

    @property
    def prefix_positions(self) -> int:
        """Positions of a slot's prefix table."""

    @property
    def text_positions(self) -> int:
        """Tokens of a slot's text table."""

    def control(self, slots: Tensor) -> Tensor:
        """int64 [n, CONTROL_COLUMNS]."""

    def options(self, slots: Tensor) -> Tensor:
        """float32 [n, OPTION_COLUMNS]."""

    def prefix(self, slots: Tensor, positions: Tensor) -> Tensor:
        """int32 [n, 1 + groups]: text id and codec entries of a position of the prompt."""

    def text(self, slots: Tensor, tokens: Tensor) -> Tensor:
        """int32 [n]: the id of a text token."""

    def speaker(self, slots: Tensor, rows: Tensor) -> Tensor:
        """float32 [n, hidden]: speaker vectors. Only those where the bool [n] `rows` is set are meaningful."""

    def successor_ids(self, ids: Tensor) -> Tensor:
        """`ids`, int [n], where the row of a prefilled prompt is replaced by the slot that continues it, if there is
        one."""

    def any(self, mask: Tensor) -> bool:
        """Whether any element of `mask` is set; True without looking where looking would wait for the device."""


class HostTables:
    """Reads the tables on a CPU."""

    def __init__(self, views: TableViews) -> None:
        self._views = views

    @property
    def prefix_positions(self) -> int:
        return self._views.prefix.shape[1]

    @property
    def text_positions(self) -> int:
        return self._views.text.shape[1]

    def control(self, slots: Tensor) -> Tensor:
        return self._views.control[slots]

    def options(self, slots: Tensor) -> Tensor:
        return self._views.options[slots]

    def prefix(self, slots: Tensor, positions: Tensor) -> Tensor:
        return self._views.prefix[slots, positions]

    def text(self, slots: Tensor, tokens: Tensor) -> Tensor:
        return self._views.text[slots, tokens]

    def speaker(self, slots: Tensor, rows: Tensor) -> Tensor:  # noqa: ARG002  # reading all rows is as fast here
        return self._views.speaker[slots]

    def successor_ids(self, ids: Tensor) -> Tensor:
        control, first = self._views.control, self._views.slots
        successors = control[ids.long().clamp(0, len(control) - 1), Field.SUCCESSOR]
        replaced = (ids >= first) & (ids < len(control)) & (successors > 0)
        return ids.where(~replaced, (successors - 1).to(ids.dtype))

    def any(self, mask: Tensor) -> bool:
        return bool(mask.any())
