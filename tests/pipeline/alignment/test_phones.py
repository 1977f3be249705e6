from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.pipeline.synthetic_codes import LETTERS, PHONES, pronunciation, table, write
from safetensors.numpy import load_file, save_file
from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.alignment.phones import (
    FIRST_CODEBOOK_TENSOR,
    PHONE_TABLE_FILE,
    PhoneScorer,
    codebook_digest,
    load_phone_table,
)
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.errors import CheckpointError
from voxgate.pipeline.text.english import spoken_english

import voices

DEMO = Path(voices.__file__).parent / "demo"


@pytest.fixture
def checkpoint(tmp_path: Path) -> TalkerCheckpoint:
    """A folder with a codebook, and a checkpoint of as many codes as the made-up table knows."""
    codec = tmp_path / "speech_tokenizer"
    codec.mkdir()
    save_file({"before": np.ones(3), FIRST_CODEBOOK_TENSOR: np.arange(8.0)}, codec / "model.safetensors")
    return replace(load_checkpoint(DEMO), folder=tmp_path, codebook=PHONES)


def test_what_was_written_is_read(checkpoint: TalkerCheckpoint) -> None:
    write(checkpoint.folder, codebook_digest(checkpoint.codec_folder))
    read = load_phone_table(checkpoint)
    assert read is not None
    np.testing.assert_array_equal(read.likelier, table().likelier)
    np.testing.assert_array_equal(read.pronunciation.of("fox").phones, table().pronunciation.of("fox").phones)


def test_without_a_file_there_is_no_table(checkpoint: TalkerCheckpoint) -> None:
    assert load_phone_table(checkpoint) is None


def test_a_table_of_another_codebook_is_left_aside(
    checkpoint: TalkerCheckpoint, caplog: pytest.LogCaptureFixture
) -> None:
    write(checkpoint.folder, codebook_digest(checkpoint.codec_folder))
    save_file({FIRST_CODEBOOK_TENSOR: np.arange(1.0, 9.0)}, checkpoint.codec_folder / "model.safetensors")
    with caplog.at_level(logging.WARNING):
        assert load_phone_table(checkpoint) is None
    assert "another codec" in caplog.text


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def lacking(path: Path) -> None:
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "usual"}, path, {"letters": "a"})


def of_fewer_codes(path: Path) -> None:
    tensors = load_file(path)
    tensors["likelier"] = tensors["likelier"][:-1].copy()
    save_file(tensors, path, {"letters": "abcdefghijklmnopqrstuvwxyz'", "codebook": "-"})


def with_no_number(path: Path) -> None:
    tensors = load_file(path)
    tensors["moments"][3] = np.nan
    save_file(tensors, path, {"letters": "abcdefghijklmnopqrstuvwxyz'", "codebook": "-"})


@pytest.mark.parametrize("damage", [cut_short, lacking, of_fewer_codes, with_no_number])
def test_a_damaged_file_is_named(checkpoint: TalkerCheckpoint, damage: Callable[[Path], None]) -> None:
    damage(write(checkpoint.folder, codebook_digest(checkpoint.codec_folder)))
    with pytest.raises(CheckpointError, match=PHONE_TABLE_FILE):
        load_phone_table(checkpoint)


def test_a_codec_without_the_codebook_is_named(checkpoint: TalkerCheckpoint) -> None:
    save_file({"other": np.ones(2)}, checkpoint.codec_folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="embedding_sum"):
        codebook_digest(checkpoint.codec_folder)


def test_the_demo_voice_finds_the_words_that_its_likeliest_codes_say() -> None:
    read = load_phone_table(load_checkpoint(DEMO))
    assert read is not None
    source = "Please hold the line, there are 3 free hours on Monday."
    codes: list[int] = []
    ends = []
    for word in source.split():
        for phone in read.pronunciation.of(spoken_english(word)).phones.argmax(axis=1):
            codes += [int(np.log(np.maximum(read.likelier[:, :, phone], 1e-6)).sum(axis=1).argmax())] * 2
        ends.append(FRAME_MS * len(codes))
        codes += [int(read.likelier[:, :, 0].sum(axis=1).argmax())] * 3 if word.endswith(",") else []
    clock = WordAligner(ear=PhoneScorer(read))
    clock.text(source, len(source))
    clock.audio(np.zeros(0, np.float32), np.array(codes, np.int16))
    clock.finish()
    words = clock.take_words()
    assert [word.text for word in words] == source.split()
    assert max(abs(word.end_ms - end) for word, end in zip(words, ends, strict=True)) <= FRAME_MS


def said(text: str) -> str:
    """Each place's likeliest phone, by the letter it is for."""
    return "".join(LETTERS[phone - 1] for phone in pronunciation().of(text).phones.argmax(axis=1))


@pytest.mark.parametrize(
    ("text", "phones"),
    [
        ("dog", "dog"),
        ("Dog.", "dog"),
        ("fox", "foks"),
        ("don't", "dont"),
        ("well-known", "wellknown"),
        ("two words", "twowords"),
        ("42", ""),
        ("…", ""),
        ("", ""),
    ],
)
def test_letters_tell_phones(text: str, phones: str) -> None:
    assert said(text) == phones


def test_every_place_is_some_phone_and_none_is_silence() -> None:
    places = pronunciation().of("the quick brown fox").phones
    np.testing.assert_allclose(places.sum(axis=1), 1, rtol=1e-6)
    assert not places[:, 0].any()


def test_a_letter_that_is_hardly_ever_silent_keeps_its_place_and_says_so() -> None:
    """The network of the made-up codes is sure of everything but this "h": it is silent every other time."""
    unsure = pronunciation()
    h = LETTERS.index("h")
    unsure.outputs[h, 0] = unsure.outputs[h].max()
    heard = unsure.of("hat")
    assert len(heard.phones) == 3
    np.testing.assert_allclose(heard.silent, [0.5, 0, 0], atol=0.01)
