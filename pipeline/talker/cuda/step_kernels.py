"""What a step reads of each of its rows, from the tables that vLLM's runner keeps by request: one kernel."""
# TODO-DOC What a step reads and writes for each of its rows, one kernel each: its input, its first draw, its frame.
# TODO-DOC `InputEmbedding` and `FrameStep` say the same in single operations, a hundred of them.

from __future__ import annotations

import triton
import triton.language as tl

from ...ipc.records import PADDING_ROW, RecordFlag
from ...ipc.slot_tables import Field, Option
from ..prompt import SPEAKER
from .sampling_kernels import draw, noise_of

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


FIELDS = tl.constexpr(16)
"""Columns of the control table's copy on the device: a power of two."""
OPTIONS = tl.constexpr(8)
"""Columns of the options' copy."""

_NOBODY = tl.constexpr(PADDING_ROW)
_SPEAKER = tl.constexpr(SPEAKER)
_END = tl.constexpr(int(RecordFlag.END))
_CAPPED = tl.constexpr(int(RecordFlag.CAPPED))
_FAILED = tl.constexpr(int(RecordFlag.FAILED))

_EPOCH = tl.constexpr(int(Field.EPOCH))
_PREFIX_LEN = tl.constexpr(int(Field.PREFIX_LEN))
_TEXT_LEN = tl.constexpr(int(Field.TEXT_LEN))
_CLOSED = tl.constexpr(int(Field.CLOSED))
_FRAME_CAP = tl.constexpr(int(Field.FRAME_CAP))
_SEED = tl.constexpr(int(Field.SEED))
_TOP_K = tl.constexpr(int(Field.TOP_K))
_PREDICTOR_TOP_K = tl.constexpr(int(Field.PREDICTOR_TOP_K))
_TEXT_LEAD = tl.constexpr(int(Field.TEXT_LEAD))
_EARLY_END = tl.constexpr(int(Field.EARLY_END))
_TEMPERATURE = tl.constexpr(int(Option.TEMPERATURE))
_TOP_P = tl.constexpr(int(Option.TOP_P))
_PENALTY = tl.constexpr(int(Option.REPETITION_PENALTY))
_PREDICTOR_TEMPERATURE = tl.constexpr(int(Option.PREDICTOR_TEMPERATURE))
_PREDICTOR_TOP_P = tl.constexpr(int(Option.PREDICTOR_TOP_P))


@triton.jit
def _column(values, names, name: tl.constexpr):
    return tl.sum(tl.where(names == name, values, 0), 0)


@triton.jit
def gather_inputs(
    ids, positions, control, wanted, text, prefix, codes, begins, control_copy, options_copy, entries,
    slots, texts, places, frames, nothing, pad, eos,
    GROUPS: tl.constexpr, COLUMNS: tl.constexpr, KNOWN_FIELDS: tl.constexpr, KNOWN_OPTIONS: tl.constexpr,
):  # fmt: skip  # one argument list
    """Read from the mapped tables what a row needs in this step; `entries`, int32 [n, COLUMNS], what it is the sum of.

    Its first column is the text's entry, then come GROUPS of the codec's, and the slot whose speaker vector is meant,
    below zero for none. `begins`: where each group's table begins in the codec's; `nothing`: its entry of zeros. The
    rest of the step reads the copies, so that all of it goes by the same numbers.
    """
    row = tl.program_id(0)
    slot = tl.load(ids + row).to(tl.int64)
    # vLLM's warm-up passes ids that no generation ever has: they and a finished one's are nobody's.
    slot = tl.where((slot < 0) | (slot > slots), slots, slot)
    real = slot < slots
    position = tl.load(positions + row).to(tl.int64)
    field = tl.arange(0, FIELDS)
    option = tl.arange(0, OPTIONS)
    # The gateway may write meanwhile: what an earlier kernel read must not be taken from a cache.
    values = tl.load(
        control + slot * KNOWN_FIELDS + field, mask=real & (field < KNOWN_FIELDS), other=0, volatile=True
    )  # fmt: skip  # one call
    wishes = tl.load(
        wanted + slot * KNOWN_OPTIONS + option, mask=real & (option < KNOWN_OPTIONS), other=0.0, volatile=True
    )  # fmt: skip  # one call
    tl.store(control_copy + slot * FIELDS + field, values)
    tl.store(options_copy + slot * OPTIONS + option, wishes)
    frame = position - _column(values, field, _PREFIX_LEN)
    token = frame + _column(values, field, _TEXT_LEAD)
    text_len = _column(values, field, _TEXT_LEN)
    column = tl.arange(0, COLUMNS)
    prompted = (frame <= 0) | (token < 0)
    line = (slot * places + tl.minimum(position, places - 1)) * (1 + GROUPS)
    prompt = tl.load(
        prefix + line + column, mask=real & prompted & (column < 1 + GROUPS), other=0, volatile=True
    )  # fmt: skip  # one call
    text_at = tl.minimum(tl.maximum(token, 0), texts - 1)
    text_id = tl.load(text + slot * texts + text_at, mask=real & (token >= 0), other=0, volatile=True)
    text_id = tl.where(token < text_len, text_id, pad)
    text_id = tl.where(token == text_len, eos, text_id)
    text_id = tl.where(token < 0, _column(prompt, column, 0), text_id)
    coded = (column > 0) & (column < 1 + GROUPS)
    frame_at = tl.minimum(tl.maximum(frame - 1, 0), frames - 1)
    made = tl.load(codes + (slot * frames + frame_at) * GROUPS + column - 1, mask=coded & (frame > 0), other=0)
    group_begins = tl.load(begins + column - 1, mask=coded, other=0).to(tl.int32)
    entry = tl.where(frame > 0, made, prompt)
    entry = tl.where((frame <= 0) & (prompt < 0), nothing, entry + group_begins)
    entry = tl.where(column == 0, text_id, entry)
    named = (frame <= 0) & (_column(prompt, column, 1) == _SPEAKER)
    entry = tl.where(column == 1 + GROUPS, tl.where(named, slot, -1).to(tl.int32), entry)
    tl.store(entries + row * COLUMNS + column, entry)


@triton.jit
def embed(
    entries, text, codec, speaker, out, hidden, GROUPS: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr
):  # fmt: skip  # one argument list
    """Sum of a row's entries, SPAN channels a program: `text`, `codec`: [entries, hidden]; `speaker`: mapped."""
    row = tl.program_id(0)
    channel = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    inside = channel < hidden
    group = tl.arange(0, GROUPS)
    entry = tl.load(entries + row * COLUMNS + 1 + group).to(tl.int64)
    whole = tl.load(codec + entry[:, None] * hidden + channel[None, :], mask=inside[None, :], other=0.0).to(tl.float32)
    total = tl.sum(whole, 0)
    text_id = tl.load(entries + row * COLUMNS).to(tl.int64)
    total += tl.load(text + text_id * hidden + channel, mask=inside, other=0.0).to(tl.float32)
    named = tl.load(entries + row * COLUMNS + 1 + GROUPS).to(tl.int64)
    total += tl.load(speaker + named * hidden + channel, mask=inside & (named >= 0), other=0.0, volatile=True)
    tl.store(out + row * hidden + channel, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def draw_first(
    states, logits, control, wanted, seen, owner, frames, first, keep, tokens, records, inv_temperature, limit, top_p, noise,
    slots, hidden, vocab, logits_line, least,
    NAMES: tl.constexpr, GROUPS: tl.constexpr, HEADER: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip  # one argument list
    """A row's codebook 0 or end of speech, its new state, and the header of its record; see `FrameStep.make`.

    `states`: [n, hidden + NAMES]; `logits`: [n, logits_line], `vocab` of them real, the last of those end of speech,
    which cannot be drawn before frame `least`; `control`, `wanted`: the copies; `seen`: int8 [slots + 1, vocab];
    `owner`, `frames`: int64 [slots + 1]. It leaves `first`, `keep` (the row of the frame's table), `tokens`: int64 [n];
    `records`: int32 [n, HEADER + GROUPS]; and the predictor's options: `inv_temperature`, `limit`, `top_p`: [n]; `noise`: [n,
    GROUPS - 1].
    """
    row = tl.program_id(0)
    name = states + row.to(tl.int64) * (hidden + NAMES) + hidden
    slot = (tl.load(name).to(tl.int64) << 8) | tl.load(name + 1).to(tl.int64)
    position = (tl.load(name + 2).to(tl.int64) << 8) | tl.load(name + 3).to(tl.int64)
    slot = tl.minimum(slot, slots)
    of = control + slot * FIELDS
    wish = wanted + slot * OPTIONS
    epoch = tl.load(of + _EPOCH)
    frame = position - tl.load(of + _PREFIX_LEN)
    made = tl.where(tl.load(owner + slot) == epoch, tl.load(frames + slot), 0)
    # Nobody else's row has this slot and this frame: a chunk of a prompt is at none, and a step too many at a later.
    live = (epoch > 0) & (frame == made) & (slot < slots)
    end = vocab - 1
    ids = tl.arange(0, SPAN)
    known = ids < vocab
    line = tl.load(logits + row.to(tl.int64) * logits_line + ids, mask=known, other=0.0).to(tl.float32)
    failed = tl.sum((tl.abs(line) < float("inf")).to(tl.int32), 0) < SPAN
    line = tl.where(failed, 0.0, line)
    before = (tl.load(seen + slot * vocab + ids, mask=known & (frame != 0), other=0) != 0) & known
    penalty = tl.load(wish + _PENALTY)
    line = tl.where(before, tl.where(line < 0, line * penalty, line / penalty), line)
    closed = tl.load(of + _CLOSED) == 1
    text_read = closed & (frame + tl.load(of + _TEXT_LEAD) >= tl.load(of + _TEXT_LEN))
    may_end = (text_read | (tl.load(of + _EARLY_END) == 1)) & (frame >= least)
    line = tl.where((ids == end) & (may_end == 0), float("-inf"), line)
    group = tl.arange(0, GROUPS)
    uniform = noise_of(tl.load(of + _SEED), frame * GROUPS + group)
    temperature = tl.load(wish + _TEMPERATURE)
    greedy = temperature <= 0
    top_k = tl.load(of + _TOP_K)
    chosen = draw(
        line, vocab, 1.0 / tl.where(greedy, 1.0, temperature), tl.minimum(tl.where(top_k > 0, top_k, vocab), vocab),
        tl.load(wish + _TOP_P), tl.where(greedy, 0.0, tl.sum(tl.where(group == 0, uniform, 0.0), 0)), SPAN,
    )  # fmt: skip  # one argument list
    chosen = chosen.to(tl.int64)
    ended = (chosen == end) | failed
    capped = closed & (frame >= tl.load(of + _FRAME_CAP)) & (ended == 0)
    ended = ended | capped
    spoken = live & (ended == 0)
    tl.store(
        seen + slot * vocab + ids, (before | ((ids == chosen) & spoken)).to(seen.dtype.element_ty), mask=known & live
    )
    tl.store(owner + slot, epoch, mask=live)
    tl.store(frames + slot, frame + 1, mask=live)
    code = tl.minimum(chosen, end - 1)
    tl.store(first + row, code)
    tl.store(keep + row, tl.where(spoken, slot, slots))
    tl.store(tokens + row, tl.where(ended & live, slots, slot))
    record = records + row * (HEADER + GROUPS)
    tl.store(record, tl.where(live, slot, _NOBODY).to(tl.int32))
    tl.store(record + 1, epoch.to(tl.int32))
    tl.store(record + 2, frame.to(tl.int32))
    flags = tl.where(ended, _END, 0) + tl.where(capped, _CAPPED, 0) + tl.where(failed, _FAILED, 0)
    tl.store(record + 3, flags.to(tl.int32))
    tl.store(record + HEADER, code.to(tl.int32))
    temperature = tl.load(wish + _PREDICTOR_TEMPERATURE)
    greedy = temperature <= 0
    tl.store(inv_temperature + row, 1.0 / tl.where(greedy, 1.0, temperature))
    top_k = tl.load(of + _PREDICTOR_TOP_K)
    tl.store(limit + row, tl.minimum(tl.where(top_k > 0, top_k, end), end))
    tl.store(top_p + row, tl.load(wish + _PREDICTOR_TOP_P))
    tl.store(noise + row * (GROUPS - 1) + group - 1, tl.where(greedy, 0.0, uniform), mask=group > 0)


@triton.jit
def store_frame(rest, first, keep, records, codes, frames, GROUPS: tl.constexpr, HEADER: tl.constexpr):
    """Put a row's codes into its record, and into the table, [slots + 1, frames, GROUPS], that the next step reads."""
    row = tl.program_id(0)
    group = tl.arange(0, GROUPS)
    record = records + row * (HEADER + GROUPS)
    code = tl.load(rest + row * (GROUPS - 1) + group - 1, mask=group > 0, other=0)
    code = tl.where(group == 0, tl.load(first + row), code).to(tl.int32)
    tl.store(record + HEADER + group, code)
    frame = tl.load(record + 2).to(tl.int64)
    at = tl.load(keep + row) * frames + tl.minimum(tl.maximum(frame, 0), frames - 1)
    tl.store(codes + at * GROUPS + group, code)


@triton.jit(do_not_specialize=["count"])
def find_first_frames(
    records, wanted, given, count, most, nobody, GROUPS: tl.constexpr, HEADER: tl.constexpr, SPAN: tl.constexpr
):  # fmt: skip  # one argument list
    """Of `wanted` talker's slots, int64 [2, most] with the codec's below them, find the first frames in the step's
    `records`, int32 [count, HEADER + GROUPS], `count` at most SPAN.

    `given`: int64 [2 + GROUPS, most], the codec's slots, ones, and the codes of each; `nobody` for one that made none.
    """
    place = tl.program_id(0)
    # The host may write there again later.
    slot = tl.load(wanted + place, volatile=True)
    codec = tl.load(wanted + most + place, volatile=True)
    rows = tl.arange(0, SPAN)
    line = records + rows.to(tl.int64) * (HEADER + GROUPS)
    known = rows < count
    mine = known & (tl.load(line, mask=known, other=-1).to(tl.int64) == slot)
    mine = mine & (tl.load(line + 2, mask=known, other=-1) == 0) & (tl.load(line + 3, mask=known, other=-1) == 0)
    at = tl.max(tl.where(mine, rows, -1), 0)
    group = tl.arange(0, GROUPS)
    codes = tl.load(
        records + at.to(tl.int64) * (HEADER + GROUPS) + HEADER + group, mask=(group >= 0) & (at >= 0), other=0
    )
    tl.store(given + place, tl.where(at >= 0, codec, nobody))
    tl.store(given + most + place, tl.full((), 1, tl.int64))
    tl.store(given + (2 + group) * most + place, codes.to(tl.int64))
