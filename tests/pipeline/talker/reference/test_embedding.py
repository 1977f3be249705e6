"""The talker's input at each position, as in `docs/qwen3_tts.md`, sections 4.1, 4.3 to 4.5 and 5.3."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables, TableShape
from voxgate.pipeline.talker.prompt import Prompt, cloned_voice_prompt, custom_voice_prompt
from voxgate.pipeline.talker.reference.embedding import FrameHistory, InputEmbedding
from voxgate.pipeline.talker.reference.slot_reader import HostTables, TableViews

from ..small_model import small_checkpoint, small_weights

SHAPE = TableShape(slots=3, prefix=20, text=6, frames=10, groups=4, hidden=24)
SLOT = 1
TEXT = [7, 3, 11]


class EmbeddingBench:
    """An embedding over tables whose slot 1 holds a prompt and three text tokens."""

    def __init__(self, checkpoint: TalkerCheckpoint) -> None:
        self.checkpoint = small_checkpoint(checkpoint)
        self.weights = small_weights(self.checkpoint)
        self.tables, _ = SlotTables.create(SHAPE)
        self.history = FrameHistory.zeros(SHAPE, self.checkpoint.codebook)
        self.codes = self.history.codes
        self.begin = 0
        self.own(custom_voice_prompt(self.checkpoint, "heart", "auto"))
        self.embed = InputEmbedding(self.weights, self.checkpoint, HostTables(TableViews.of(self.tables)), self.history)

    def own(self, prompt: Prompt) -> None:
        """Fill the slot's tables as a generation does."""
        codec = prompt.codec(len(TEXT))
        self.begin = len(codec) - 1
        self.tables.prefix[SLOT, : len(prompt.text), 0] = prompt.text
        self.tables.prefix[SLOT, : len(codec), 1:] = codec
        self.tables.text[SLOT, : len(TEXT)] = TEXT
        if prompt.speaker_vector is not None:
            self.tables.speaker[SLOT] = prompt.speaker_vector
        row = self.tables.control[SLOT]
        row[Field.PREFIX_LEN], row[Field.TEXT_LEAD] = self.begin, self.begin - len(prompt.text)
        row[Field.TEXT_LEN], row[Field.CLOSED] = len(TEXT), 1

    def at(self, *positions: int, slot: int = SLOT) -> Tensor:
        return self.embed(torch.full((len(positions),), slot), torch.tensor(positions))

    def text(self, token: int) -> Tensor:
        """TE(id) = fc2(silu(fc1(text_embedding[id])))"""
        w, layer = self.weights, "talker.text_projection.linear_"
        x = w["talker.model.text_embedding.weight"][token]
        x = F.silu(F.linear(x, w[f"{layer}fc1.weight"], w[f"{layer}fc1.bias"]))
        return F.linear(x, w[f"{layer}fc2.weight"], w[f"{layer}fc2.bias"])

    def code(self, entry: int) -> Tensor:
        return self.weights["talker.model.codec_embedding.weight"][entry]

    def frame(self, codes: list[int]) -> Tensor:
        rest = [
            self.weights[f"talker.code_predictor.model.codec_embedding.{g}.weight"][code]
            for g, code in enumerate(codes[1:])
        ]
        return self.code(codes[0]) + torch.stack(rest).sum(0)


@pytest.fixture
def bench(checkpoint: TalkerCheckpoint) -> EmbeddingBench:
    return EmbeddingBench(checkpoint)


def same(made: Tensor, *expected: Tensor) -> bool:
    return torch.allclose(made, torch.stack(expected), atol=1e-5)


def test_role_has_a_text_side_only(bench: EmbeddingBench) -> None:
    ids = bench.checkpoint.text_ids
    assert same(bench.at(0, 1, 2), *(bench.text(t) for t in (ids.im_start, ids.assistant, ids.newline)))


def test_rest_of_the_prefix_sums_both_sides(bench: EmbeddingBench) -> None:
    ids, codec = bench.checkpoint.text_ids, bench.checkpoint.codec_ids
    entries = (codec.nothink, codec.think_bos, codec.think_eos, bench.checkpoint.speakers["heart"])
    expected = [bench.text(ids.pad) + bench.code(entry) for entry in entries]
    assert same(bench.at(3, 4, 5, 6, 7), *expected, bench.text(ids.bos) + bench.code(codec.pad))


def test_first_text_token_is_summed_with_begin_of_codec(bench: EmbeddingBench) -> None:
    begin = bench.begin
    assert same(bench.at(begin), bench.text(TEXT[0]) + bench.code(bench.checkpoint.codec_ids.bos))


def test_later_positions_sum_the_previous_frame_and_the_next_text_token(bench: EmbeddingBench) -> None:
    ids, begin = bench.checkpoint.text_ids, bench.begin
    frames = [[5, 1, 2, 3], [19, 0, 19, 7], [8, 8, 8, 8], [2, 4, 6, 8]]
    bench.codes[SLOT, : len(frames)] = torch.tensor(frames, dtype=torch.int32)
    texts = [TEXT[1], TEXT[2], ids.eos, ids.pad]
    expected = [bench.text(text) + bench.frame(frame) for text, frame in zip(texts, frames, strict=True)]
    assert same(bench.at(*(begin + 1 + n for n in range(4))), *expected)


def test_frames_of_another_slot_are_read_behind_the_prompt(bench: EmbeddingBench) -> None:
    """Each position's input is the same as where the frames were made, and their ids count as sampled."""
    begin, past = bench.begin, 3
    frames = [[5, 1, 2, 3], [19, 0, 19, 7], [8, 8, 8, 8], [2, 4, 6, 8]]
    bench.codes[SLOT, : len(frames)] = torch.tensor(frames, dtype=torch.int32)
    positions = range(begin, begin + 5)
    expected = bench.at(*positions)
    row = bench.tables.control[SLOT]
    row[Field.EPOCH], row[Field.PAST_FRAMES] = 9, past
    bench.tables.prefix[SLOT, begin + 1 : begin + 1 + past, 1:] = frames[:past]
    bench.codes[SLOT, :past] = 0
    assert torch.equal(bench.at(*positions), expected)
    assert bench.history.sampled[SLOT].nonzero().flatten().tolist() == [5, 8, 19]
    assert bench.history.sampled[SLOT].max() == 9


def test_padding_follows_end_of_text(bench: EmbeddingBench) -> None:
    begin = bench.begin
    last = begin + SHAPE.frames
    bench.codes[SLOT, SHAPE.frames - 1] = torch.tensor([1, 2, 3, 4])
    expected = bench.text(bench.checkpoint.text_ids.pad) + bench.frame([1, 2, 3, 4])
    assert same(bench.at(last), expected)


def test_text_that_fills_its_slot_is_followed_by_end_of_text(bench: EmbeddingBench) -> None:
    full = list(range(SHAPE.text))
    bench.tables.text[SLOT] = full
    bench.tables.control[SLOT, Field.TEXT_LEN] = len(full)
    ids, begin = bench.checkpoint.text_ids, bench.begin
    nothing = bench.frame([0, 0, 0, 0])
    expected = (bench.text(full[-1]) + nothing, bench.text(ids.eos) + nothing, bench.text(ids.pad) + nothing)
    assert same(bench.at(begin + 5, begin + 6, begin + 7), *expected)


def test_text_written_later_is_read(bench: EmbeddingBench) -> None:
    position = bench.begin + len(TEXT)
    before = bench.at(position)
    bench.tables.text[SLOT, len(TEXT)] = 9
    bench.tables.control[SLOT, Field.TEXT_LEN] += 1
    assert not torch.equal(bench.at(position), before)
    assert same(bench.at(position), bench.text(9) + bench.frame([0, 0, 0, 0]))


def test_position_does_not_depend_on_the_batch(bench: EmbeddingBench) -> None:
    bench.codes[:] = torch.randint(20, bench.codes.shape, dtype=torch.int32)
    positions = list(range(bench.begin + 6))
    together = bench.at(*positions)
    for position in positions:
        assert torch.equal(bench.at(position)[0], together[position])
    shuffled = torch.randperm(len(positions)).tolist()
    assert torch.equal(bench.at(*(positions[n] for n in shuffled)), together[shuffled])


VECTOR = np.linspace(-1, 1, 24, dtype=np.float32)
REFERENCE = [13, 14]
FRAMES = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def cloned(bench: EmbeddingBench, layout: TextLayout, frames: list[list[int]] | None = None) -> list[Tensor]:
    """Fill the slot with a cloned voice's prompt; returns the expected positions before begin-of-codec."""
    voice = ClonedVoice("ada", VECTOR, "Hello.", np.array(frames)) if frames else ClonedVoice("ada", VECTOR)
    bench.own(cloned_voice_prompt(bench.checkpoint, voice, "auto", REFERENCE if frames else (), layout))
    ids, codec = bench.checkpoint.text_ids, bench.checkpoint.codec_ids
    role = [bench.text(token) for token in (ids.im_start, ids.assistant, ids.newline)]
    tag = [bench.text(ids.pad) + bench.code(e) for e in (codec.nothink, codec.think_bos, codec.think_eos)]
    return [*role, *tag, bench.text(ids.pad) + torch.from_numpy(VECTOR), bench.text(ids.bos) + bench.code(codec.pad)]


def test_speaker_vector_takes_the_place_of_a_speaker(bench: EmbeddingBench) -> None:
    head = cloned(bench, TextLayout.STREAMING)
    begin = bench.text(TEXT[0]) + bench.code(bench.checkpoint.codec_ids.bos)
    assert same(bench.at(*range(9)), *head, begin)
    assert bench.begin == 8


def test_non_streaming_text_precedes_the_speech(bench: EmbeddingBench) -> None:
    head = cloned(bench, TextLayout.NON_STREAMING)
    ids, codec = bench.checkpoint.text_ids, bench.checkpoint.codec_ids
    text = [bench.text(token) + bench.code(codec.pad) for token in [*TEXT, ids.eos]]
    begin = bench.text(ids.pad) + bench.code(codec.bos)
    bench.codes[SLOT, 0] = torch.tensor([5, 1, 2, 3])
    assert same(bench.at(*range(14)), *head, *text, begin, bench.text(ids.pad) + bench.frame([5, 1, 2, 3]))


def test_reference_frames_are_summed_with_reference_text_and_text(bench: EmbeddingBench) -> None:
    head = cloned(bench, TextLayout.STREAMING, FRAMES)
    texts = [bench.text(token) for token in [*REFERENCE, *TEXT, bench.checkpoint.text_ids.eos]]
    sounds = [
        bench.code(bench.checkpoint.codec_ids.bos),
        *(bench.frame(f) for f in [*FRAMES, [5, 1, 2, 3], [0, 0, 0, 0]]),
    ]
    bench.codes[SLOT, 0] = torch.tensor([5, 1, 2, 3])
    assert same(bench.at(*range(14)), *head, *(t + s for t, s in zip(texts, sounds, strict=True)))


def test_short_reference_is_followed_by_the_rest_of_its_text(bench: EmbeddingBench) -> None:
    head = cloned(bench, TextLayout.STREAMING, FRAMES[:1])
    begin = bench.code(bench.checkpoint.codec_ids.bos)
    sounds = [begin, bench.frame(FRAMES[0]), bench.frame([4, 3, 2, 1]), bench.frame([0, 0, 0, 0])]
    texts = [bench.text(token) for token in [*REFERENCE, TEXT[0], TEXT[1]]]
    bench.codes[SLOT, 0] = torch.tensor([4, 3, 2, 1])
    assert same(bench.at(*range(12)), *head, *(t + s for t, s in zip(texts, sounds, strict=True)))


def test_reference_text_longer_than_its_frames_continues_during_speech(bench: EmbeddingBench) -> None:
    voice = ClonedVoice("ada", VECTOR, "Hello.", np.array(FRAMES[:1]))
    reference = [13, 14, 15, 16]
    bench.own(cloned_voice_prompt(bench.checkpoint, voice, "auto", reference))
    bench.codes[SLOT, :3] = torch.tensor([[4, 3, 2, 1]] * 3)
    sounds = [bench.frame(FRAMES[0]), *[bench.frame([4, 3, 2, 1])] * 3]
    texts = [bench.text(token) for token in [*reference[1:], TEXT[0]]]
    assert same(bench.at(9, 10, 11, 12), *(t + s for t, s in zip(texts, sounds, strict=True)))


def test_reference_precedes_the_speech_in_the_non_streaming_layout(bench: EmbeddingBench) -> None:
    head = cloned(bench, TextLayout.NON_STREAMING, FRAMES)
    ids, codec = bench.checkpoint.text_ids, bench.checkpoint.codec_ids
    text = [bench.text(token) + bench.code(codec.pad) for token in [*REFERENCE, *TEXT, ids.eos]]
    sounds = [bench.code(codec.bos), *(bench.frame(frame) for frame in FRAMES)]
    assert same(bench.at(*range(18)), *head, *text, *(bench.text(ids.pad) + sound for sound in sounds))
    assert bench.begin == 17


def test_slots_are_independent(bench: EmbeddingBench) -> None:
    begin = bench.begin
    before = bench.at(begin, begin + 1, begin + 3)
    for table in (bench.tables.control, bench.tables.prefix, bench.tables.text):
        table[2] = table[SLOT]
    bench.tables.text[2] = 19
    bench.codes[2] = 13
    mixed = bench.embed(torch.tensor([SLOT, 2, SLOT]), torch.tensor([begin, begin + 1, begin + 3]))
    assert torch.equal(mixed[[0, 2]], before[[0, 2]])
    assert same(mixed[1:2], bench.text(19) + bench.frame([13] * 4))


def test_positions_outside_any_generation_give_finite_values(bench: EmbeddingBench) -> None:
    """vLLM's warm-up embeds any position of any slot."""
    made = bench.embed(torch.tensor([0, 2, SLOT]), torch.tensor([0, 5000, 5000]))
    assert bool(made.isfinite().all())
