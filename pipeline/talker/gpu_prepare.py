"""What a step reads of each of its rows, from the tables that vLLM's runner keeps by request: one kernel."""

from __future__ import annotations

import triton
import triton.language as tl

PAGES = 64
"""Pages of a row that are copied at a time."""


@triton.jit(do_not_specialize=["count", "padded"])
def prepare_rows(
    rows, computed, last, tables, lengths, ids, positions, seen, starts, pages, places,
    count, padded, line, page, nowhere, SPAN: tl.constexpr,
):  # fmt: skip  # one argument list
    """What the backbone's graph reads of a row, or of one that pads the batch, which has `padded` of them.

    By request, as vLLM's runner keeps them: `computed` positions, `last` token, `tables` of pages, [n, line], and their
    `lengths`. It leaves `ids`, `positions`, `seen` (positions with this one), `starts` (from row 0 on), the `pages` in
    the batch's order and the `places` in the cache; `page`: places of one; `nowhere`: where padding's keys go.
    """
    at = tl.program_id(0)
    real = at < count
    row = tl.load(rows + at, mask=real, other=0).to(tl.int64)
    position = tl.load(computed + row).to(tl.int64)
    token = tl.load(last + row)
    tl.store(ids + at, token.to(tl.int32), mask=real)
    tl.store(positions + at, position, mask=real)
    tl.store(seen + at, tl.where(real, position + 1, 0).to(tl.int32), mask=at < padded)
    tl.store(starts + at + 1, tl.minimum(at + 1, count), mask=at < padded)
    tl.store(starts, 0, mask=at == 0)
    own = tl.load(tables + row * line + position // page).to(tl.int64)
    tl.store(places + at, tl.where(real, own * page + position % page, nowhere))
    length = tl.where(real, tl.load(lengths + row), line)
    length = tl.where(at < padded, length, 0)
    for first in range(0, length, SPAN):
        column = first + tl.arange(0, SPAN)
        numbers = tl.load(tables + row * line + column, mask=(column < length) & real, other=0)
        tl.store(pages + at.to(tl.int64) * line + column, numbers, mask=column < length)
