"""The phone table of a checkpoint: reading it, its letter-to-phone network, and alignment with the demo voice's."""

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
    """A folder with a codebook, and a checkpoint with the number of codes of the synthetic table."""
    codec = tmp_path / "speech_tokenizer"
    codec.mkdir()
    save_file({"before": np.ones(3), FIRST_CODEBOOK_TENSOR: np.arange(8.0)}, codec / "model.safetensors")
    return replace(load_checkpoint(DEMO), folder=tmp_path, codebook=PHONES)


def test_table_is_read_as_written(checkpoint: TalkerCheckpoint) -> None:
    write(checkpoint.folder, codebook_digest(checkpoint.codec_folder))
    read = load_phone_table(checkpoint)
    assert read is not None
    np.testing.assert_array_equal(read.likelihood_ratios, table().likelihood_ratios)
    np.testing.assert_array_equal(read.pronunciation.predict("fox").phones, table().pronunciation.predict("fox").phones)


def test_checkpoint_without_file_has_no_table(checkpoint: TalkerCheckpoint) -> None:
    assert load_phone_table(checkpoint) is None


def test_table_of_another_codebook_is_ignored_with_warning(
    checkpoint: TalkerCheckpoint, caplog: pytest.LogCaptureFixture
) -> None:
    write(checkpoint.folder, codebook_digest(checkpoint.codec_folder))
    save_file({FIRST_CODEBOOK_TENSOR: np.arange(1.0, 9.0)}, checkpoint.codec_folder / "model.safetensors")
    with caplog.at_level(logging.WARNING):
        assert load_phone_table(checkpoint) is None
    assert "another codec" in caplog.text


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def remove_tensor(path: Path) -> None:
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "usual"}, path, {"letters": "a"})


def remove_code(path: Path) -> None:
    tensors = load_file(path)
    tensors["likelier"] = tensors["likelier"][:-1].copy()
    save_file(tensors, path, {"letters": "abcdefghijklmnopqrstuvwxyz'", "codebook": "-"})


def insert_nan(path: Path) -> None:
    tensors = load_file(path)
    tensors["moments"][3] = np.nan
    save_file(tensors, path, {"letters": "abcdefghijklmnopqrstuvwxyz'", "codebook": "-"})


@pytest.mark.parametrize("damage", [truncate, remove_tensor, remove_code, insert_nan])
def test_damaged_file_raises_error_with_its_name(checkpoint: TalkerCheckpoint, damage: Callable[[Path], None]) -> None:
    damage(write(checkpoint.folder, codebook_digest(checkpoint.codec_folder)))
    with pytest.raises(CheckpointError, match=PHONE_TABLE_FILE):
        load_phone_table(checkpoint)


def test_codec_without_codebook_raises_error_with_tensor_name(checkpoint: TalkerCheckpoint) -> None:
    save_file({"other": np.ones(2)}, checkpoint.codec_folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="embedding_sum"):
        codebook_digest(checkpoint.codec_folder)


def test_demo_voice_aligns_its_likeliest_codes() -> None:
    read = load_phone_table(load_checkpoint(DEMO))
    assert read is not None
    source = "Please hold the line, there are 3 free hours on Monday."
    codes: list[int] = []
    ends = []
    for word in source.split():
        for phone in read.pronunciation.predict(spoken_english(word)).phones.argmax(axis=1):
            codes += [int(np.log(np.maximum(read.likelihood_ratios[:, :, phone], 1e-6)).sum(axis=1).argmax())] * 2
        ends.append(FRAME_MS * len(codes))
        codes += [int(read.likelihood_ratios[:, :, 0].sum(axis=1).argmax())] * 3 if word.endswith(",") else []
    aligner = WordAligner(scorer=PhoneScorer(read))
    aligner.push_text(source, len(source))
    aligner.push_audio(np.zeros(0, np.float32), np.array(codes, np.int16))
    aligner.finish()
    words = aligner.take_words()
    assert [word.text for word in words] == source.split()
    assert max(abs(word.end_ms - end) for word, end in zip(words, ends, strict=True)) <= FRAME_MS


def predicted(text: str) -> str:
    """The likeliest phone of each place, as the letter that it stands for."""
    return "".join(LETTERS[phone - 1] for phone in pronunciation().predict(text).phones.argmax(axis=1))


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
def test_letters_give_phones(text: str, phones: str) -> None:
    assert predicted(text) == phones


def test_places_are_distributions_without_silence() -> None:
    places = pronunciation().predict("the quick brown fox").phones
    np.testing.assert_allclose(places.sum(axis=1), 1, rtol=1e-6)
    assert not places[:, 0].any()


def test_uncertain_letter_keeps_its_place_with_its_silent_probability() -> None:
    """The synthetic network is certain of every letter but this "h", which is silent in half of all cases."""
    unsure = pronunciation()
    h = LETTERS.index("h")
    unsure.outputs[h, 0] = unsure.outputs[h].max()
    sequence = unsure.predict("hat")
    assert len(sequence.phones) == 3
    np.testing.assert_allclose(sequence.silent, [0.5, 0, 0], atol=0.01)
