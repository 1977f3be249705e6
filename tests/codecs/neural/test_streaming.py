"""Decoding in slots, with exact state and from the left context alone, against the single pass."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from voxgate.codecs.neural.config import KEPT_STATES, CodecMode
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.streaming import OverlapDecoder, SlotDecoder, StatefulDecoder, load_slot_decoder

from .conftest import DEMO, random_codes
from .oracle import OracleDecoder

EXACT = 1e-10


def decode(decoder: SlotDecoder, codes: torch.Tensor, chunks: list[int], first_slot: int = 0) -> torch.Tensor:
    """Decodes new streams, int64 [B, sum(chunks), 16], in consecutive slots, chunk by chunk."""
    slots = torch.arange(first_slot, first_slot + len(codes))
    runs, first = [], 0
    for frames in chunks:
        fresh = torch.full((len(codes),), int(first == 0))
        runs.append(decoder.decode(codes[:, first : first + frames], slots, fresh))
        first += frames
    return torch.cat(runs, dim=1)


def both_strategies(decoder: CodecDecoder, slots: int) -> list[SlotDecoder]:
    return [StatefulDecoder(decoder, slots), OverlapDecoder(decoder, slots, decoder.config.exact_left_context)]


def test_exact_left_context_is_needed_and_sufficient(small: CodecDecoder, small_oracle: OracleDecoder) -> None:
    context = 2 + 3 * (6 - 1) + 10
    assert small.config.exact_left_context == context
    codes = random_codes(small, rows=1, frames=context + 12)
    expected = small_oracle(codes)
    chunks = [1] * codes.shape[1]
    enough = decode(OverlapDecoder(small, 1, context), codes, chunks)
    short = decode(OverlapDecoder(small, 1, context - 10), codes, chunks)
    assert (enough - expected).abs().max() < EXACT
    assert (short - expected).abs().max() > 100 * EXACT


@settings(max_examples=6, deadline=None)
@given(chunks=st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_any_chunking_equals_single_pass(small: CodecDecoder, small_oracle: OracleDecoder, chunks: list[int]) -> None:
    codes = random_codes(small, rows=2, frames=sum(chunks))
    expected = small_oracle(codes)
    for decoder in both_strategies(small, slots=2):
        assert (decode(decoder, codes, chunks) - expected).abs().max() < EXACT


def test_reused_slot_keeps_no_trace_of_the_stream_before(small: CodecDecoder) -> None:
    codes = random_codes(small, rows=2, frames=9)
    for decoder in both_strategies(small, slots=3):
        decode(decoder, codes.flip(1), [9], first_slot=1)
        again = decode(decoder, codes, [4, 5], first_slot=1)
        assert (again - small.decode_all(codes)).abs().max() < EXACT


def test_rows_without_stream_share_the_padding_slot(small: CodecDecoder) -> None:
    codes = random_codes(small, rows=3, frames=2)
    for decoder in both_strategies(small, slots=1):
        slots = torch.tensor([0, decoder.slots, decoder.slots])
        pcm = decoder.decode(codes, slots, torch.ones(3, dtype=torch.int64))
        assert (pcm[:1] - small.decode_all(codes[:1])).abs().max() < EXACT


def test_failed_batch_advances_no_stream(small: CodecDecoder) -> None:
    codes = random_codes(small, rows=1, frames=4)
    slot, continued = torch.tensor([0]), torch.tensor([0])
    for decoder in both_strategies(small, slots=1):
        first = decode(decoder, codes[:, :2], [2])
        with pytest.raises(ValueError, match="codes"):
            decoder.decode(codes[:, 2:] + 1000, slot, continued)
        second = decoder.decode(codes[:, 2:], slot, continued)
        assert (torch.cat((first, second), dim=1) - small.decode_all(codes)).abs().max() < EXACT


@pytest.mark.parametrize("left_context", [0, 3, 10, 14])
def test_rows_with_less_context_are_decoded_as_if_alone(small: CodecDecoder, left_context: int) -> None:
    """Padding never reaches a chunk: rows with 0, 1, 5 and 20 frames before it, in one batch and each alone."""
    together, alone = OverlapDecoder(small, 4, left_context), OverlapDecoder(small, 4, left_context)
    positions = [5, 0, 20, 1]
    codes = random_codes(small, rows=4, frames=24)
    expected = []
    for slot, position in enumerate(positions):
        row = codes[slot : slot + 1]
        for decoder in (together, alone) if position else ():
            decode(decoder, row[:, :position], [position], first_slot=slot)
        chunk, fresh = row[:, position : position + 3], torch.tensor([int(not position)])
        expected.append(alone.decode(chunk, torch.tensor([slot]), fresh)[0])
    chunks = torch.stack([codes[row, p : p + 3] for row, p in enumerate(positions)])
    pcm = together.decode(chunks, torch.arange(4), torch.tensor([0, 1, 0, 0]))
    assert (pcm - torch.stack(expected)).abs().max() < EXACT


def test_overlap_equals_the_end_of_a_single_pass_over_the_context(
    small: CodecDecoder, small_oracle: OracleDecoder
) -> None:
    codes = random_codes(small, rows=1, frames=24)
    pcm = decode(OverlapDecoder(small, 1, left_context=14), codes, [20, 4])[:, 20 * 1920 :]
    expected = small_oracle(codes[:, 6:])[:, 14 * 1920 :]
    assert (pcm - expected).abs().max() < EXACT


@pytest.mark.parametrize("codec_mode", ["stateful", "overlap"])
def test_both_modes_load_and_begin_alike(codec_mode: CodecMode, demo: CodecDecoder) -> None:
    decoder = load_slot_decoder(DEMO, 1, codec_mode, left_context=10)
    codes = random_codes(demo, rows=1, frames=3)
    assert (decode(decoder, codes, [1, 2]) - demo.decode_all(codes)).abs().max() < 1e-5


def test_stream_behind_a_kept_state_equals_the_one_that_it_was_kept_of(small: CodecDecoder) -> None:
    """To the bit, in any slot, whatever was decoded meanwhile; the first and the last place hold different states."""
    codes = random_codes(small, rows=2, frames=9)
    for decoder in both_strategies(small, slots=3):
        heard = []
        for row, place in ((0, 0), (1, KEPT_STATES - 1)):
            decode(decoder, codes[row : row + 1, :5], [2, 3], first_slot=1)
            decoder.keep_state(1, place)
            heard.append(decoder.decode(codes[row : row + 1, 5:], torch.tensor([1]), torch.tensor([0])))
        for row, place in ((0, 0), (1, KEPT_STATES - 1)):
            for slot in (2, 0):
                decoder.restore_state(slot, place)
                again = decoder.decode(codes[row : row + 1, 5:], torch.tensor([slot]), torch.tensor([0]))
                assert torch.equal(again, heard[row])
