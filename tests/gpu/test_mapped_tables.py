"""Reading the slot tables in place, against reading them on the host."""

from __future__ import annotations

import pytest
import torch
from voxgate.pipeline.ipc.slot_tables import Field, TableShape
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews

from .conftest import mapped_tables

SHAPE = TableShape(slots=3, prefix=4, text=4, frames=4, groups=2, hidden=8, prefilled_prompts=3)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_row_of_a_prefilled_prompt_becomes_its_successor(device: torch.device, kind: torch.dtype) -> None:
    from voxgate.pipeline.talker.cuda.mapped_tables import MappedTables

    with mapped_tables(SHAPE) as tables:
        tables.control[:, Field.SUCCESSOR] = [3, 3, 3, 0, 2, 1]
        ids = torch.tensor([0, 1, 2, 3, 4, 5, 6, 40], dtype=kind)
        views = TableViews.of(tables)
        replaced = MappedTables(views).successor_ids(ids.to(device))
        assert replaced.dtype == kind
        assert replaced.tolist() == [0, 1, 2, 3, 1, 0, 6, 40], "slots and ids outside the tables stay"
        assert HostTables(views).successor_ids(ids).tolist() == replaced.tolist()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_host_store_is_visible_to_the_next_kernel() -> None:
    from voxgate.pipeline.talker.cuda.mapped_tables import MappedTables

    with mapped_tables(SHAPE) as tables:
        mapped, slots = MappedTables(TableViews.of(tables)), torch.tensor([2, 0, SHAPE.rows], device="cuda")
        for value in (7, 8):
            tables.control[2] = value
            assert mapped.control(slots).cpu()[:, 0].tolist() == [value, 0, 0]
        tables.text[1, 3] = 42
        assert mapped.text(torch.tensor([1], device="cuda"), torch.tensor([3], device="cuda")).tolist() == [42]
