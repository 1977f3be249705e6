"""What a step reads of the tables in the gateway's memory, against the same on a CPU."""

from __future__ import annotations

import pytest
import torch
from voxgate.pipeline.ipc.slot_tables import Field, TableShape
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews

from .conftest import mapped_tables

SHAPE = TableShape(slots=3, prefix=4, text=4, frames=4, groups=2, hidden=8, prefilled_prompts=3)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_a_prompts_row_goes_by_its_heirs_name(device: torch.device, kind: torch.dtype) -> None:
    from voxgate.pipeline.talker.cuda.mapped_tables import MappedTables

    with mapped_tables(SHAPE) as tables:
        tables.control[:, Field.SUCCESSOR] = [3, 3, 3, 0, 2, 1]
        ids = torch.tensor([0, 1, 2, 3, 4, 5, 6, 40], dtype=kind)
        views = TableViews.of(tables)
        named = MappedTables(views).successor_ids(ids.to(device))
        assert named.dtype == kind
        assert named.tolist() == [0, 1, 2, 3, 1, 0, 6, 40], "slots go by their own, and what is no row too"
        assert HostTables(views).successor_ids(ids).tolist() == named.tolist()
