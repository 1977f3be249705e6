"""Kokoro: weights from the ONNX file, exact padding, British phonemes, and chunks of several voices."""

# ruff: noqa: RUF001 - phonemes are written in the phonetic alphabet.

from __future__ import annotations

import queue
from pathlib import Path

import numpy as np
import pytest
import torch
from train.run_files import load_weights
from train.speech import kokoro, kokoro_network, kokoro_weights
from train.speech.kokoro import NumberedText
from train.speech.kokoro_prosody import StyledBlock, TextEncoder, TokenLayer, valid_steps
from train.speech.onnx_file import OnnxGraph, OnnxNode, read_graph
from train.speech.phonemes import PhonemeText, timed, with_letter_names
from train.speech.synthesis import CHUNK_SENTENCES, RATE_HZ
from train.store import read_chunk


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


def test_nodes_and_weights_are_read_from_the_file() -> None:
    weights = np.array([[1.5, 2], [3, 4], [5, 6]], np.float32)
    plain = field(1, 3) + field(1, 2) + field(2, 1) + field(8, b"w") + field(9, weights.tobytes())
    small = field(1, bytes([2])) + field(2, 7) + field(8, b"shape") + field(7, bytes([5, 0x80, 0x01]))
    node = field(1, b"x") + field(1, b"w") + field(3, b"/encoder/a/Conv") + field(4, b"Conv")
    graph = read_graph(field(1, 9) + field(7, field(1, node) + field(5, plain) + field(5, small)))
    assert graph.nodes == [OnnxNode("/encoder/a/Conv", "Conv", ["x", "w"])]
    assert np.array_equal(graph.weights["w"], weights)
    assert graph.weights["shape"].tolist() == [5, 128]


def test_a_tensor_without_all_values_is_refused() -> None:
    tensor = field(1, 3) + field(2, 3) + field(8, b"w") + field(9, b"ab")
    with pytest.raises(ValueError, match="'w' must be a tensor"):
        read_graph(field(7, field(5, tensor)))


@pytest.mark.parametrize(
    ("node", "module"),
    [
        ("/encoder/text_encoder/cnn.0/cnn.0.0/Conv_quant", "text_encoder.cnn.0.0"),
        ("/encoder/bert/encoder/albert/ffn_7/MatMul_quant", "bert.encoder.albert.ffn"),
        ("/encoder/F0.1/conv1/Conv_quant", "predictor.F0.1.conv1"),
        ("/encoder/shared/LSTM_quant", "predictor.shared"),
    ],
)
def test_modules_are_named_by_the_paths_of_nodes(node: str, module: str) -> None:
    assert kokoro_weights.module_path(node) == module


def test_weights_keep_their_eight_bits_until_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.array([[0, 10], [20, 30], [40, 50]], np.int8)
    graph = OnnxGraph(
        [
            OnnxNode(
                "/encoder/bert_encoder/MatMul_quant", "MatMulInteger", ["x", "m_quantized", "x_zero", "m_zero_point"]
            )
        ],
        {"m_quantized": stored, "m_scale": np.array([0.5, 2], np.float32), "m_zero_point": np.array([10, 20], np.int8)}
        | {"encoder.bert_encoder.bias": np.ones(2, np.float32)},
    )
    tensors = kokoro_weights.named_weights(graph)
    assert tensors["bert_encoder.weight"].dtype == np.int8
    paths = kokoro_weights.write_parts(tensors | {"style.emma": np.zeros((3, 256), np.float32)}, tmp_path)
    assert [path.name for path in paths] == ["kokoro.0.safetensors"]

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert_encoder = torch.nn.Linear(3, 2)

    monkeypatch.setattr(kokoro_network, "KokoroNetwork", Small)
    network, styles = kokoro_network.load_network(tmp_path)
    assert network.bert_encoder.weight.tolist() == [[-5, 5, 15], [-20, 20, 60]]
    assert styles["emma"].shape == (3, 256)


def test_parts_have_at_most_the_size_of_a_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kokoro_weights, "_MOST_BYTES", 100)
    tensors = {name: np.full(20, at, np.float32) for at, name in enumerate("abc")}
    paths = kokoro_weights.write_parts(tensors, tmp_path)
    assert len(paths) == 3
    assert {name for path in paths for name in load_weights(path)} == set("abc")


def test_padding_does_not_change_a_sentence() -> None:
    torch.manual_seed(0)
    block, encoder, layer = StyledBlock(6, 8, doubles=True).eval(), TextEncoder().eval(), TokenLayer().eval()
    style, x, frames = torch.randn(2, 128), torch.randn(2, 6, 9), torch.tensor([5, 9])
    valid = valid_steps(frames, 9, 9)
    assert valid.sum(-1).flatten().tolist() == [5, 9]
    whole = block(x * valid, style, valid)
    alone = block(x[:1, :, :5], style[:1], torch.ones(1, 1, 5))
    # The last convolution sees two steps beyond the end.
    torch.testing.assert_close(whole[:1, :, :10], alone, atol=1e-5, rtol=1e-4)
    tokens, lengths = torch.tensor([[0, 7, 9, 0, 0], [0, 7, 9, 11, 0]]), torch.tensor([4, 5])
    present = torch.arange(5)[None] < lengths[:, None]
    with torch.no_grad():
        both = encoder(tokens, lengths, present)
        torch.testing.assert_close(both[:1, :4], encoder(tokens[:1, :4], lengths[:1], present[:1, :4]))
        states = torch.randn(2, 5, 768)
        torch.testing.assert_close(
            layer(states, present)[:1, :4], layer(states[:1, :4], present[:1, :4]), atol=1e-5, rtol=1e-4
        )


def test_british_letters_have_british_names_and_long_vowels_their_length() -> None:
    assert with_letter_names("b o z.", british=True) == "[b](/bˈiː/) [o](/ˈQ/) [z](/zˈɛd/)."
    phones, words = timed(list("sˈiː."), np.cumsum([0.3, 0.1, 0.05, 0.1, 0.1, 0.2, 0.3]), ["sea."])
    assert [(phone.name, round(phone.end_s, 3)) for phone in phones[:3]] == [("pau", 0.3), ("s", 0.4), ("iy", 0.65)]
    assert words[0].end_s == pytest.approx(0.65)


def text(line: int, phonemes: int, voice: str = "emma") -> NumberedText:
    spoken = ["s"] * phonemes
    return NumberedText(voice, line, PhonemeText(["s"], spoken, [0, *[5] * phonemes, 0]))


def test_every_line_of_a_block_has_one_voice() -> None:
    lines = 2 * CHUNK_SENTENCES * 3 - 5
    read = [pair for block in range(2) for pair in kokoro.block_lines(block, lines)]
    assert [line for _, line in read] == list(range(lines))
    counts = {voice: sum(name == voice for name, _ in read[: 3 * CHUNK_SENTENCES]) for voice in kokoro_weights.VOICES}
    assert set(counts.values()) == {CHUNK_SENTENCES}


def test_batches_have_sentences_of_like_length_and_a_limit_of_padded_tokens() -> None:
    texts = [text(line, 1 + line * 7 % 50) for line in range(50)]
    made = list(kokoro.batches(texts, sentences=8, tokens=120))
    assert sorted(one.line for batch in made for one in batch) == list(range(50))
    assert all(len(batch) * max(len(one.text.ids) for one in batch) <= 120 for batch in made)
    assert max(map(len, made)) == 8
    assert len(made[0][0].text.ids) == 52


def test_chunks_have_the_sentences_of_each_voice(tmp_path: Path) -> None:
    (tmp_path / "speech").mkdir()
    inbox: queue.Queue[object] = queue.Queue()
    ticks = np.array([12, 12, 12])
    sound = np.concatenate([np.zeros(7200), np.full(7200, 0.05), np.zeros(7200)]).astype(np.float32)
    spoken = [(text(line, 1, voice), sound, ticks) for line, voice in ((7, "emma"), (3, "george"), (1, "emma"))]
    silent = (text(10, 1, "emma"), np.zeros_like(sound), ticks)
    for item in ((0, spoken), (0, [silent]), (0, None), None):
        inbox.put(item)

    class Hours(list[float]):
        def get_lock(self) -> object:
            from contextlib import nullcontext

            return nullcontext()

    hours = Hours([0.0] * 3)
    kokoro._write(tmp_path, inbox, hours)
    emma = read_chunk(tmp_path / "speech" / "emma_00000.json")
    assert (emma.voice, emma.lines) == ("emma", [1, 7])
    assert read_chunk(tmp_path / "speech" / "george_00000.json").lines == [3]
    assert hours[0] == 0 < hours[2] < hours[1]
    assert len(emma.audio) / RATE_HZ == pytest.approx(hours[1] * 3600)
    # A block is done when each voice has its chunk.
    assert kokoro.unwritten_blocks(tmp_path / "speech", 600) == [0]
