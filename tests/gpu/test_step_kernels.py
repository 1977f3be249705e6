"""A step of frames alone, as vLLM's runner would prepare it."""

from __future__ import annotations

import pytest
import torch

REQUESTS, LINE, PAGE, NOWHERE = 9, 150, 16, -1


@pytest.mark.parametrize(("count", "padded", "positions"), [(1, 1, 1), (3, 4, 4), (5, 6, 8), (0, 1, 1)])
def test_rows_are_found_in_the_tables_of_their_requests(
    device: torch.device, count: int, padded: int, positions: int
) -> None:
    from voxgate.pipeline.talker.cuda.step_kernels import PAGES, prepare_rows

    random = torch.Generator().manual_seed(count)
    own = torch.randint(1, 1000, (REQUESTS, LINE), generator=random, dtype=torch.int32)
    computed = torch.randint(0, LINE * PAGE, (REQUESTS,), generator=random, dtype=torch.int32)
    lengths = computed // PAGE + 1
    last = torch.randint(0, 500, (REQUESTS, 1), generator=random)
    rows = torch.randperm(REQUESTS, generator=random)[:count].int()
    filler = torch.full((16,), 77, dtype=torch.int32)
    ids, places, at = filler.clone(), filler.long(), filler.long()
    # Room for so many rows, and no more.
    seen, starts, pages = filler[:padded].clone(), filler[: padded + 1].clone(), torch.full((padded, LINE), 77).int()
    made = [each.to(device) for each in (ids, at, seen, starts, pages, places)]
    read = [each.to(device) for each in (torch.cat([rows, filler]), computed, last, own, lengths)]
    prepare_rows[(max(padded, positions),)](*read, *made, count, padded, LINE, PAGE, NOWHERE, SPAN=PAGES, num_warps=1)
    ids, at, seen, starts, pages, places = (each.cpu() for each in made)
    for n, row in enumerate(rows.tolist()):
        position, length = int(computed[row]), int(lengths[row])
        assert (int(ids[n]), int(at[n]), int(seen[n])) == (int(last[row]), position, position + 1)
        assert pages[n, :length].tolist() == own[row, :length].tolist()
        assert int(places[n]) == int(own[row, position // PAGE]) * PAGE + position % PAGE
    assert starts.tolist() == [*range(count + 1), *[count] * (padded - count)]
    assert not seen[count:].any()
    assert not pages[count:].any()
    assert places[count:positions].eq(NOWHERE).all()
    assert places[positions:].eq(77).all()
    assert ids[count:].eq(77).all()
