from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.streaming import OverlapDecoder, load_streaming_decoder

from .conftest import DEMO, random_codes
from .oracle import OracleDecoder

EXACT = 1e-10


def overlapped(decoder: OverlapDecoder, codes: torch.Tensor, chunks: list[int]) -> torch.Tensor:
    state, heard, first = decoder.initial_state(len(codes)), [], 0
    for frames in chunks:
        pcm, state = decoder.decode(codes[:, first : first + frames], state)
        heard.append(pcm)
        first += frames
    return torch.cat(heard, dim=1)


def test_enough_left_context_is_exact_and_one_frame_less_is_not(
    small: CodecDecoder, small_oracle: OracleDecoder
) -> None:
    context = 2 + 3 * (6 - 1) + 10
    assert small.config.exact_left_context == context
    codes = random_codes(small, rows=1, frames=context + 12)
    expected = small_oracle(codes)
    chunks = [1] * codes.shape[1]
    enough = overlapped(OverlapDecoder(small, context), codes, chunks)
    short = overlapped(OverlapDecoder(small, context - 10), codes, chunks)
    assert (enough - expected).abs().max() < EXACT
    assert (short - expected).abs().max() > 100 * EXACT


@settings(max_examples=6, deadline=None)
@given(chunks=st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_exact_context_in_any_chunking(small: CodecDecoder, small_oracle: OracleDecoder, chunks: list[int]) -> None:
    codes = random_codes(small, rows=2, frames=sum(chunks))
    pcm = overlapped(OverlapDecoder(small, small.config.exact_left_context), codes, chunks)
    assert (pcm - small_oracle(codes)).abs().max() < EXACT


@pytest.mark.parametrize("left_context", [0, 3, 10, 14])
def test_rows_with_less_context_are_decoded_as_if_alone(small: CodecDecoder, left_context: int) -> None:
    """Padding never bleeds: rows with 0, 1, 5 and 20 frames behind them, in one batch and each alone."""
    decoder = OverlapDecoder(small, left_context)
    positions = [5, 0, 20, 1]
    codes = random_codes(small, rows=4, frames=24)
    slab = decoder.initial_state(4)
    alone = []
    for row, position in enumerate(positions):
        state = decoder.initial_state(1)
        if position:
            _, state = decoder.decode(codes[row : row + 1, :position], state)
            slab.put(torch.tensor([row]), state)
        alone.append(decoder.decode(codes[row : row + 1, position : position + 3], state)[0][0])
    chunk = torch.stack([codes[row, p : p + 3] for row, p in enumerate(positions)])
    together, _ = decoder.decode(chunk, slab)
    assert (together - torch.stack(alone)).abs().max() < EXACT


def test_rows_alone_re_decode_what_they_say(small: CodecDecoder, small_oracle: OracleDecoder) -> None:
    """A chunk is exactly the end of a single pass over the context and the chunk."""
    decoder = OverlapDecoder(small, left_context=14)
    codes = random_codes(small, rows=1, frames=24)
    _, state = decoder.decode(codes[:, :20], decoder.initial_state(1))
    pcm, _ = decoder.decode(codes[:, 20:], state)
    expected = small_oracle(codes[:, 6:])[:, 14 * 1920 :]
    assert (pcm - expected).abs().max() < EXACT


@pytest.mark.parametrize("mode", ["stateful", "overlap"])
def test_both_modes_load_and_begin_alike(mode: str, demo: CodecDecoder) -> None:
    decoder = load_streaming_decoder(DEMO, "stateful" if mode == "stateful" else "overlap", left_context=10)
    codes = random_codes(demo, rows=1, frames=3)
    first, state = decoder.decode(codes[:, :1], decoder.initial_state(1))
    second, _ = decoder.decode(codes[:, 1:], state)
    assert (torch.cat((first, second), dim=1) - demo.decode_all(codes)).abs().max() < 1e-5
