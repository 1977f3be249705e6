"""Triton kernels of a step outside the transformer layers: inputs, codebook 0, the stored frame, first frames.

`InputEmbedding` and `FrameStep` (`reference/`) compute the same in a hundred single operations. No parameter of a
kernel may be called `options`: Triton's generated launcher has one of that name.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...ipc.records import PADDING_ROW, RecordFlag
from ...ipc.slot_tables import CONTROL_COLUMNS, OPTION_COLUMNS, SPEAKER, Field, Option
from .sampling_kernels import draw, uniform_noise

PAGES = 64
"""Pages of a row that `prepare_rows` copies at a time."""

_FIELDS = tl.constexpr(CONTROL_COLUMNS)
_OPTIONS = tl.constexpr(OPTION_COLUMNS)
_PADDING_ROW = tl.constexpr(PADDING_ROW)
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
_PAST_FRAMES = tl.constexpr(int(Field.PAST_FRAMES))
_TEMPERATURE = tl.constexpr(int(Option.TEMPERATURE))
_TOP_P = tl.constexpr(int(Option.TOP_P))
_PENALTY = tl.constexpr(int(Option.REPETITION_PENALTY))
_PREDICTOR_TEMPERATURE = tl.constexpr(int(Option.PREDICTOR_TEMPERATURE))
_PREDICTOR_TOP_P = tl.constexpr(int(Option.PREDICTOR_TOP_P))


@triton.jit(do_not_specialize=["count", "padded"])
def prepare_rows(
    rows, computed, last_token, tables, lengths, ids, positions, seq_lens, starts, pages, cache_slots,
    count, padded, table_stride, page_size, padding_slot, SPAN: tl.constexpr,
):  # fmt: skip  # one argument list
    """Prepare the inputs of the backbone's graph for a batch of single positions; a program a row.

    Reads, by request as vLLM's runner keeps them: `computed` positions, `last_token`, page `tables` [n, table_stride]
    and their `lengths`; `rows`: the request of each of the `count` rows. Writes, for a batch padded to `padded` rows:
    `ids`, `positions`, `seq_lens` (positions including this one), `starts` (first row of each request, [padded + 1]),
    `pages` in the order of the batch and `cache_slots` (places in the cache; `padding_slot` for padding rows).
    """
    at = tl.program_id(0)
    real = at < count
    row = tl.load(rows + at, mask=real, other=0).to(tl.int64)
    position = tl.load(computed + row).to(tl.int64)
    token = tl.load(last_token + row)
    tl.store(ids + at, token.to(tl.int32), mask=real)
    tl.store(positions + at, position, mask=real)
    tl.store(seq_lens + at, tl.where(real, position + 1, 0).to(tl.int32), mask=at < padded)
    tl.store(starts + at + 1, tl.minimum(at + 1, count), mask=at < padded)
    tl.store(starts, 0, mask=at == 0)
    page = tl.load(tables + row * table_stride + position // page_size).to(tl.int64)
    tl.store(cache_slots + at, tl.where(real, page * page_size + position % page_size, padding_slot))
    length = tl.where(real, tl.load(lengths + row), table_stride)
    length = tl.where(at < padded, length, 0)
    for first in range(0, length, SPAN):
        column = first + tl.arange(0, SPAN)
        numbers = tl.load(tables + row * table_stride + column, mask=(column < length) & real, other=0)
        tl.store(pages + at.to(tl.int64) * table_stride + column, numbers, mask=column < length)


@triton.jit
def _column(values, columns, column: tl.constexpr):
    """One element of a row that is loaded as a block."""
    return tl.sum(tl.where(columns == column, values, 0), 0)


@triton.jit
def gather_inputs(
    ids, positions, control, slot_options, text, prefix, codes, sampled, group_starts,
    control_snapshot, options_snapshot, entries, slots, text_positions, prefix_positions, frames, vocab, no_entry, pad,
    eos, GROUPS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip  # one argument list
    """Read from the mapped tables all that a row needs in this step, and find the embeddings that its input sums.

    `entries`, int32 [n, COLUMNS]: the row of the text table, GROUPS rows of the codec table, and the slot whose speaker
    vector is added, below zero for none. `group_starts`: where the table of each group starts in the codec table;
    `no_entry`: its row of zeros. `codes`, `sampled` [slots + 1, vocab]: of `FrameHistory`, in which positions of frames
    that were made in another slot note their id. The control row and the options go to the snapshots, by slot, which
    the rest of the step reads: so the whole step uses the same values.
    """
    row = tl.program_id(0)
    slot = tl.load(ids + row).to(tl.int64)
    # Ids of vLLM's warm-up and of generations that have ended belong to the padding slot, the last one.
    slot = tl.where((slot < 0) | (slot > slots), slots, slot)
    real = slot < slots
    position = tl.load(positions + row).to(tl.int64)
    field = tl.arange(0, _FIELDS)
    option = tl.arange(0, _OPTIONS)
    # volatile: the gateway writes concurrently, so a cached copy of an earlier read must not be used.
    control_row = tl.load(control + slot * _FIELDS + field, mask=real & (field >= 0), other=0, volatile=True)
    option_row = tl.load(slot_options + slot * _OPTIONS + option, mask=real & (option >= 0), other=0.0, volatile=True)
    tl.store(control_snapshot + slot * _FIELDS + field, control_row)
    tl.store(options_snapshot + slot * _OPTIONS + option, option_row)
    frame = position - _column(control_row, field, _PREFIX_LEN)
    token = frame + _column(control_row, field, _TEXT_LEAD)
    text_len = _column(control_row, field, _TEXT_LEN)
    column = tl.arange(0, COLUMNS)
    past = _column(control_row, field, _PAST_FRAMES)
    in_prompt = (frame <= past) | (token < 0)
    prefix_at = (slot * prefix_positions + tl.minimum(position, prefix_positions - 1)) * (1 + GROUPS)
    prompt = tl.load(
        prefix + prefix_at + column, mask=real & in_prompt & (column < 1 + GROUPS), other=0, volatile=True
    )  # fmt: skip  # one call
    text_at = tl.minimum(tl.maximum(token, 0), text_positions - 1)
    text_id = tl.load(text + slot * text_positions + text_at, mask=real & (token >= 0), other=0, volatile=True)
    text_id = tl.where(token < text_len, text_id, pad)
    text_id = tl.where(token == text_len, eos, text_id)
    text_id = tl.where(token < 0, _column(prompt, column, 0), text_id)
    is_code = (column > 0) & (column < 1 + GROUPS)
    frame_at = tl.minimum(tl.maximum(frame - 1, 0), frames - 1)
    code = tl.load(codes + (slot * frames + frame_at) * GROUPS + column - 1, mask=is_code & (frame > past), other=0)
    group_start = tl.load(group_starts + column - 1, mask=is_code, other=0).to(tl.int32)
    entry = tl.where(frame > past, code, prompt)
    entry = tl.where((frame <= past) & (prompt < 0), no_entry, entry + group_start)
    entry = tl.where(column == 0, text_id, entry)
    first_code = _column(prompt, column, 1)
    epoch = _column(control_row, field, _EPOCH)
    made_elsewhere = real & (frame > 0) & (frame <= past) & (first_code >= 0)
    tl.store(sampled + slot * vocab + first_code, epoch.to(tl.int32), mask=made_elsewhere)
    has_speaker = (frame <= 0) & (first_code == _SPEAKER)
    entry = tl.where(column == 1 + GROUPS, tl.where(has_speaker, slot, -1).to(tl.int32), entry)
    tl.store(entries + row * COLUMNS + column, entry)


@triton.jit
def embed(
    entries, text, codec, speaker, out, hidden, GROUPS: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr
):  # fmt: skip  # one argument list
    """Sum the embeddings in `entries`, SPAN channels a program.

    `text`, `codec`: [entries, hidden]; `speaker`: mapped.
    """
    row = tl.program_id(0)
    channel = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    mask = channel < hidden
    group = tl.arange(0, GROUPS)
    entry = tl.load(entries + row * COLUMNS + 1 + group).to(tl.int64)
    codec_rows = tl.load(codec + entry[:, None] * hidden + channel[None, :], mask=mask[None, :], other=0.0)
    total = tl.sum(codec_rows.to(tl.float32), 0)
    text_id = tl.load(entries + row * COLUMNS).to(tl.int64)
    total += tl.load(text + text_id * hidden + channel, mask=mask, other=0.0).to(tl.float32)
    slot = tl.load(entries + row * COLUMNS + 1 + GROUPS).to(tl.int64)
    total += tl.load(speaker + slot * hidden + channel, mask=mask & (slot >= 0), other=0.0, volatile=True)
    tl.store(out + row * hidden + channel, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def draw_first(
    states, logits, control, slot_options, sampled, owner, frames, first, stored_rows, tokens, records,
    inv_temperature, predictor_top_k, predictor_top_p, noise,
    slots, hidden, vocab, logits_stride, min_frames,
    TAGS: tl.constexpr, GROUPS: tl.constexpr, HEADER: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip  # one argument list
    """Draw codebook 0 or end of speech for a row, update the slot's state, write the record's header: `FrameStep.make`.

    `states`: [n, hidden + TAGS]; `logits`: [n, logits_stride], of which `vocab` are real and the last of those is end
    of speech, which cannot be drawn before frame `min_frames`; `control`, `slot_options`: the snapshots;
    `sampled`: int32 [slots + 1, vocab], of `FrameHistory`; `owner`, `frames`: int64 [slots + 1]. Writes `first`,
    `stored_rows` (row of the frame table), `tokens`: int64 [n]; `records`: int32 [n, HEADER + GROUPS]; and the
    predictor's options: `inv_temperature`, `predictor_top_k`, `predictor_top_p`: [n]; `noise`: float32 [n, GROUPS - 1].
    """
    row = tl.program_id(0)
    tag = states + row.to(tl.int64) * (hidden + TAGS) + hidden
    slot = (tl.load(tag).to(tl.int64) << 8) | tl.load(tag + 1).to(tl.int64)
    position = (tl.load(tag + 2).to(tl.int64) << 8) | tl.load(tag + 3).to(tl.int64)
    slot = tl.minimum(slot, slots)
    control_row = control + slot * _FIELDS
    option_row = slot_options + slot * _OPTIONS
    epoch = tl.load(control_row + _EPOCH)
    frame = position - tl.load(control_row + _PREFIX_LEN)
    frames_made = tl.where(tl.load(owner + slot) == epoch, tl.load(frames + slot), tl.load(control_row + _PAST_FRAMES))
    # At most one row of a batch is at its slot's next frame: parts of a prompt and superfluous steps are not.
    live = (epoch > 0) & (frame == frames_made) & (slot < slots)
    end = vocab - 1
    ids = tl.arange(0, SPAN)
    known = ids < vocab
    line = tl.load(logits + row.to(tl.int64) * logits_stride + ids, mask=known, other=0.0).to(tl.float32)
    failed = tl.sum((tl.abs(line) < float("inf")).to(tl.int32), 0) < SPAN
    line = tl.where(failed, 0.0, line)
    before = (tl.load(sampled + slot * vocab + ids, mask=known, other=0).to(tl.int64) == epoch) & known
    penalty = tl.load(option_row + _PENALTY)
    line = tl.where(before, tl.where(line < 0, line * penalty, line / penalty), line)
    closed = tl.load(control_row + _CLOSED) == 1
    text_read = closed & (frame + tl.load(control_row + _TEXT_LEAD) >= tl.load(control_row + _TEXT_LEN))
    may_end = (text_read | (tl.load(control_row + _EARLY_END) == 1)) & (frame >= min_frames)
    line = tl.where((ids == end) & (may_end == 0), float("-inf"), line)
    group = tl.arange(0, GROUPS)
    uniform = uniform_noise(tl.load(control_row + _SEED), frame * GROUPS + group)
    temperature = tl.load(option_row + _TEMPERATURE)
    greedy = temperature <= 0
    top_k = tl.load(control_row + _TOP_K)
    chosen = draw(
        line, vocab, 1.0 / tl.where(greedy, 1.0, temperature), tl.minimum(tl.where(top_k > 0, top_k, vocab), vocab),
        tl.load(option_row + _TOP_P), tl.where(greedy, 0.0, tl.sum(tl.where(group == 0, uniform, 0.0), 0)), SPAN,
    )  # fmt: skip  # one argument list
    chosen = chosen.to(tl.int64)
    ended = (chosen == end) | failed
    capped = closed & (frame >= tl.load(control_row + _FRAME_CAP)) & (ended == 0)
    ended = ended | capped
    spoken = live & (ended == 0)
    tl.store(sampled + slot * vocab + chosen, epoch.to(tl.int32), mask=spoken)
    tl.store(owner + slot, epoch, mask=live)
    tl.store(frames + slot, frame + 1, mask=live)
    code = tl.minimum(chosen, end - 1)
    tl.store(first + row, code)
    tl.store(stored_rows + row, tl.where(spoken, slot, slots))
    tl.store(tokens + row, tl.where(ended & live, slots, slot))
    record = records + row * (HEADER + GROUPS)
    tl.store(record, tl.where(live, slot, _PADDING_ROW).to(tl.int32))
    tl.store(record + 1, epoch.to(tl.int32))
    tl.store(record + 2, frame.to(tl.int32))
    flags = tl.where(ended, _END, 0) + tl.where(capped, _CAPPED, 0) + tl.where(failed, _FAILED, 0)
    tl.store(record + 3, flags.to(tl.int32))
    tl.store(record + HEADER, code.to(tl.int32))
    temperature = tl.load(option_row + _PREDICTOR_TEMPERATURE)
    greedy = temperature <= 0
    tl.store(inv_temperature + row, 1.0 / tl.where(greedy, 1.0, temperature))
    top_k = tl.load(control_row + _PREDICTOR_TOP_K)
    tl.store(predictor_top_k + row, tl.minimum(tl.where(top_k > 0, top_k, end), end))
    tl.store(predictor_top_p + row, tl.load(option_row + _PREDICTOR_TOP_P))
    tl.store(noise + row * (GROUPS - 1) + group - 1, tl.where(greedy, 0.0, uniform), mask=group > 0)


@triton.jit
def store_frame(rest, first, stored_rows, records, codes, frames, GROUPS: tl.constexpr, HEADER: tl.constexpr):
    """Write a row's codes to its record and to `codes`, [slots + 1, frames, GROUPS], which the next step reads."""
    row = tl.program_id(0)
    group = tl.arange(0, GROUPS)
    record = records + row * (HEADER + GROUPS)
    code = tl.load(rest + row * (GROUPS - 1) + group - 1, mask=group > 0, other=0)
    code = tl.where(group == 0, tl.load(first + row), code).to(tl.int32)
    tl.store(record + HEADER + group, code)
    frame = tl.load(record + 2).to(tl.int64)
    at = tl.load(stored_rows + row) * frames + tl.minimum(tl.maximum(frame, 0), frames - 1)
    tl.store(codes + at * GROUPS + group, code)


@triton.jit(do_not_specialize=["count"])
def find_first_frames(
    records, wanted, inputs, count, columns, padding_slot, GROUPS: tl.constexpr, HEADER: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip  # one argument list
    """Find the first frames of `wanted` slots among a step's records, and write the codec's inputs; a program a slot.

    `records`: int32 [count, HEADER + GROUPS], `count` at most SPAN; `wanted`: int64 [3, columns], slots of the talker,
    slots of the codec, and 1 for a fresh stream; `inputs`: int64 [2 + GROUPS, columns], the codec's slot, whether its
    stream is fresh, and the codes of each; `padding_slot` where the step made no first frame.
    """
    place = tl.program_id(0)
    # volatile: the host reuses this memory in later steps.
    slot = tl.load(wanted + place, volatile=True)
    codec_slot = tl.load(wanted + columns + place, volatile=True)
    fresh = tl.load(wanted + 2 * columns + place, volatile=True)
    rows = tl.arange(0, SPAN)
    line = records + rows.to(tl.int64) * (HEADER + GROUPS)
    known = rows < count
    matches = known & (tl.load(line, mask=known, other=-1).to(tl.int64) == slot)
    matches = matches & (tl.load(line + 2, mask=known, other=-1) == 0) & (tl.load(line + 3, mask=known, other=-1) == 0)
    at = tl.max(tl.where(matches, rows, -1), 0)
    group = tl.arange(0, GROUPS)
    codes = tl.load(
        records + at.to(tl.int64) * (HEADER + GROUPS) + HEADER + group, mask=(group >= 0) & (at >= 0), other=0
    )
    tl.store(inputs + place, tl.where(at >= 0, codec_slot, padding_slot))
    tl.store(inputs + columns + place, tl.where(at >= 0, fresh, 1))
    tl.store(inputs + (2 + group) * columns + place, codes.to(tl.int64))
