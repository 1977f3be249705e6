from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.decoder_shapes import tensor_shapes
from voxgate.codecs.neural.stream_state import StreamState
from voxgate.codecs.neural.weights import random_tensors

from .conftest import SMALL, random_codes
from .oracle import OracleDecoder

EXACT = 1e-10  # float64
CLOSE = 1e-5  # float32

chunkings = st.lists(st.integers(1, 8), min_size=1, max_size=6)


def decode_in_chunks(
    decoder: CodecDecoder, codes: torch.Tensor, chunks: list[int], state: StreamState | None = None
) -> tuple[torch.Tensor, StreamState]:
    state = state or decoder.initial_state(len(codes))
    heard, first = [], 0
    for frames in chunks:
        pcm, state = decoder.decode(codes[:, first : first + frames], state)
        heard.append(pcm)
        first += frames
    assert first == codes.shape[1]
    return torch.cat(heard, dim=1), state


def test_single_pass_equals_the_oracle(small: CodecDecoder, small_oracle: OracleDecoder) -> None:
    codes = random_codes(small, rows=3, frames=30)
    expected = small_oracle(codes)
    assert expected.abs().mean() > 0.01  # silence would match anything
    assert (expected.abs() < 1).double().mean() > 0.9
    assert (small.decode_all(codes) - expected).abs().max() < EXACT


def test_demo_voice_equals_the_oracle(demo: CodecDecoder, demo_oracle: OracleDecoder) -> None:
    codes = random_codes(demo, rows=1, frames=40)
    pcm = demo.decode_all(codes)
    assert pcm.shape == (1, 40 * 1920)
    assert pcm.dtype is torch.float32
    assert (pcm - demo_oracle(codes)).abs().max() < CLOSE


@settings(max_examples=12, deadline=None)
@given(chunks=chunkings)
def test_chunks_equal_a_single_pass(small: CodecDecoder, small_oracle: OracleDecoder, chunks: list[int]) -> None:
    codes = random_codes(small, rows=2, frames=sum(chunks))
    pcm, state = decode_in_chunks(small, codes, chunks)
    assert (pcm - small_oracle(codes)).abs().max() < EXACT
    assert state.frames.tolist() == [sum(chunks)] * 2


@pytest.mark.parametrize("chunks", [[1] * 40, [1, 1, 2, 4, 8, 8, 16], [40], [7, 13, 20]])
def test_demo_voice_in_chunks_equals_a_single_pass(
    demo: CodecDecoder, demo_oracle: OracleDecoder, chunks: list[int]
) -> None:
    codes = random_codes(demo, rows=1, frames=40)
    pcm, _ = decode_in_chunks(demo, codes, chunks)
    assert (pcm - demo_oracle(codes)).abs().max() < CLOSE


@settings(max_examples=8, deadline=None)
@given(positions=st.lists(st.integers(0, 20), min_size=2, max_size=5), frames=st.integers(1, 4))
def test_rows_at_different_positions_are_independent(small: CodecDecoder, positions: list[int], frames: int) -> None:
    rows = len(positions)
    codes = random_codes(small, rows, max(positions) + frames)
    slab = small.initial_state(rows)
    for row, position in enumerate(positions):
        if position:
            slot = torch.tensor([row])
            _, state = small.decode(codes[row : row + 1, :position], slab.take(slot))
            slab.put(slot, state)
    chunk = torch.stack([codes[row, p : p + frames] for row, p in enumerate(positions)])
    together, _ = small.decode(chunk, slab)
    for row, position in enumerate(positions):
        alone = small.decode_all(codes[row : row + 1, : position + frames])
        assert (together[row] - alone[0, position * 1920 :]).abs().max() < EXACT


def test_demo_rows_in_mixed_batches_equal_rows_alone(demo: CodecDecoder) -> None:
    codes = random_codes(demo, rows=4, frames=30)
    alone = demo.decode_all(codes)
    slab = demo.initial_state(4)
    done = [0, 0, 0, 0]
    heard: list[list[torch.Tensor]] = [[], [], [], []]
    for slots, frames in [([2], 1), ([0, 2], 4), ([3, 0, 2, 1], 8), ([1, 3], 2), ([2, 1, 0], 8), ([3], 20)]:
        index = torch.tensor(slots)
        chunk = torch.stack([codes[slot, done[slot] : done[slot] + frames] for slot in slots])
        pcm, state = demo.decode(chunk, slab.take(index))
        slab.put(index, state)
        for row, slot in enumerate(slots):
            heard[slot].append(pcm[row])
            done[slot] += frames
    for slot, frames in enumerate(done):
        assert (torch.cat(heard[slot]) - alone[slot, : frames * 1920]).abs().max() < CLOSE


def test_reset_slot_keeps_no_state(small: CodecDecoder) -> None:
    codes = random_codes(small, rows=2, frames=12)
    slab = small.initial_state(2)
    slots = torch.tensor([0, 1])
    _, state = small.decode(codes, slab.take(slots))
    slab.put(slots, state)
    slab.reset(torch.tensor([1]))
    again, _ = small.decode(codes, slab.take(slots))
    fresh, _ = small.decode(codes, small.initial_state(2))
    assert torch.equal(again[1], fresh[1])
    assert not torch.equal(again[0], fresh[0])  # the other slot continued


def test_decoding_does_not_change_the_given_state(small: CodecDecoder) -> None:
    codes = random_codes(small, rows=1, frames=3)
    _, state = small.decode(codes, small.initial_state(1))
    history, frames = state.history.clone(), state.frames.clone()
    small.decode(codes, state)
    assert torch.equal(state.history, history)
    assert torch.equal(state.frames, frames)


def test_late_position_decodes_as_an_early_one(demo: CodecDecoder) -> None:
    """Positions are relative: beyond the left context, a late position decodes like an early one."""
    reach = demo.config.exact_left_context
    codes = random_codes(demo, rows=1, frames=reach + 4)
    early, _ = demo.decode(codes, demo.initial_state(1))
    beginning = demo.initial_state(1)
    late, _ = demo.decode(codes, StreamState(beginning.history, torch.tensor([45_000])))
    assert (early - late)[:, reach * 1920 :].abs().max() < CLOSE


@pytest.mark.parametrize("code", [-1, 10**6])
def test_codes_outside_the_codebooks_are_refused(small: CodecDecoder, code: int) -> None:
    codes = random_codes(small, rows=1, frames=2)
    codes[0, 1, 15] = code
    with pytest.raises(ValueError, match="codes"):
        small.decode(codes, small.initial_state(1))


def test_streams_divided_among_threads_are_decoded_as_by_one(small: CodecDecoder) -> None:
    """To the bit; and where one stream's codes are refused, none has advanced."""
    threaded = CodecDecoder(SMALL, random_tensors(SMALL), torch.float64, threads=3)
    codes, slots = random_codes(small, rows=5, frames=6), torch.tensor([4, 0, 3, 1, 2])
    heard = []
    for decoder in (small, threaded):
        slab = decoder.initial_state(5)
        first = decoder.decode_slots(codes[:, :2], slab, slots)
        with pytest.raises(ValueError, match="codes"):
            decoder.decode_slots(codes[:, 2:].index_fill(0, torch.tensor([4]), 10**6), slab, slots)
        heard.append(torch.cat((first, decoder.decode_slots(codes[:, 2:], slab, slots)), dim=1))
        assert slab.frames.tolist() == [6] * 5
    assert torch.equal(*heard)
    context = torch.tensor([0, 2, 1, 4, 3])
    assert torch.equal(*(decoder.decode_windows(codes, context, 2) for decoder in (small, threaded)))


def test_decoder_is_built_over_tensors_without_memory(small: CodecDecoder) -> None:
    """Its kernels for a GPU are compiled ahead over such tensors."""
    with torch.device("meta"):
        built = CodecDecoder(SMALL, {name: torch.empty(shape) for name, shape in tensor_shapes(SMALL).items()})
        assert built.input.weight.dense().shape == small.input.weight.dense().shape
    assert built.history_width == small.history_width
