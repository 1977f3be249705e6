"""The phone table of a checkpoint: reading it, its letter-to-phone network, and alignment with the demo voice's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import voxgate.voices
from fakes.pipeline.synthetic_codes import (
    LETTERS,
    PHONES,
    Codes,
    acoustic_scorer,
    no_sound,
    pronunciation,
    spoken,
    table,
    write,
)
from safetensors.numpy import load_file, save_file
from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.phones import (
    FIRST_CODEBOOK_TENSOR,
    PHONE_TABLE_FILE,
    PhoneScorer,
    codebook_digest,
    load_phone_table,
    spoken_word,
)
from voxgate.pipeline.alignment.word_timing import WordAligner, WordTiming
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.errors import CheckpointError
from voxgate.pipeline.interface import WordTime
from voxgate.pipeline.text.english import spoken_english

DEMO = Path(voxgate.voices.__file__).parent / "demo"


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


# Alignment by phones, on synthetic codes: letters of uneven lengths, and one code in ten wrong.

SOURCE = "the quick brown fox jumps, over the lazy dog. And then it sleeps a little."
WORDS = SOURCE.split()


def aligner_for(source: str) -> WordAligner:
    aligner = WordAligner(scorer=acoustic_scorer())
    aligner.push_text(source, len(source))
    return aligner


def push_frames(timing: WordTiming, codes: Codes) -> list[WordTime]:
    """Push the codes frame by frame; returns the words emitted meanwhile."""
    emitted: list[WordTime] = []
    for at in range(len(codes)):
        timing.push_audio(no_sound(codes[at : at + 1]), codes[at : at + 1])
        emitted += timing.take_words()
    return emitted


@pytest.mark.parametrize("seed", range(5))
def test_word_ends_are_found_within_two_frames(seed: int) -> None:
    codes, ends = spoken(SOURCE, seed=seed)
    aligner = aligner_for(SOURCE)
    words = push_frames(aligner, codes)
    aligner.finish()
    words += aligner.take_words()
    assert [word.text for word in words] == WORDS
    missed = np.abs(np.array([word.end_ms for word in words]) - ends)
    assert np.median(missed) == 0
    assert missed.max() <= 2 * FRAME_MS


def test_words_are_emitted_in_order_soon_after_they_end() -> None:
    codes, _ = spoken(SOURCE)
    aligner = aligner_for(SOURCE)
    emitted = []
    for at in range(len(codes)):
        aligner.push_audio(no_sound(codes[at : at + 1]), codes[at : at + 1])
        for word in aligner.take_words():
            assert word.end_ms <= FRAME_MS * (at + 1) - 60
            emitted.append((word, FRAME_MS * (at + 1) - word.end_ms))
    assert np.median([waited for _, waited in emitted]) <= 320
    assert len(emitted) >= len(WORDS) - 2
    borders_ms = [ms for word, _ in emitted for ms in (word.start_ms, word.end_ms)]
    assert borders_ms == sorted(borders_ms)


def test_ambiguous_border_is_not_emitted() -> None:
    """The border between "aaa" and "aa" is unknown until another sound follows."""
    codes, _ = spoken("aaa aa b.", slips=0)
    aligner = aligner_for("aaa aa b.")
    spoken_a = int(np.argmax(codes != codes[0]))
    assert push_frames(aligner, codes[:spoken_a]) == []
    aligner.finish()
    assert [word.text for word in aligner.take_words()] == ["aaa", "aa", "b."]


def test_pauses_with_and_without_punctuation_belong_to_no_word() -> None:
    first, first_ends = spoken("one two.", slips=0, pause_frames=9)
    second, second_ends = spoken("three four", slips=0)
    silence = np.zeros(5, np.int16)
    aligner = aligner_for("one two. three four")
    words = push_frames(aligner, np.concatenate([silence, first, second, silence]))
    aligner.finish()
    words += aligner.take_words()
    assert words[0].start_ms == 5 * FRAME_MS
    assert words[1].end_ms == first_ends[1] + 5 * FRAME_MS
    begin = (5 + len(first)) * FRAME_MS
    assert words[2].start_ms == begin
    assert words[3].end_ms == begin + second_ends[-1]


def test_unspoken_word_takes_at_most_one_frame() -> None:
    codes, ends = spoken("one two four five", slips=0)
    aligner = aligner_for("one two three four five")
    words = push_frames(aligner, codes)
    aligner.finish()
    words += aligner.take_words()
    assert abs(words[1].end_ms - ends[1]) <= FRAME_MS
    assert words[2].end_ms - words[2].start_ms <= FRAME_MS
    assert words[4].end_ms == ends[-1]


def test_numbers_and_units_are_aligned_in_spoken_form() -> None:
    codes, ends = spoken("by two o'clock they weighed six kilograms", slips=0)
    source = "By 2:00 they weighed 6 kg"
    aligner = aligner_for(source)
    words = push_frames(aligner, codes)
    aligner.finish()
    words += aligner.take_words()
    result = [(word.text, word.end_ms) for word in words]
    assert result == list(zip(source.split(), [ends[0], *ends[2:]], strict=True))


@pytest.mark.parametrize(
    ("word", "before", "letters"),
    [
        ("kg", "8", "kilograms"),
        ("Main", "the", "main"),
        ("$3", "", "three dollars"),
        ("million.", "$3", "million. dollars"),
        ("million", "3", "million"),
        ("of", "$3", "of"),
    ],
)
def test_spoken_word_depends_on_preceding_word(word: str, before: str, letters: str) -> None:
    assert spoken_word(word, before) == letters


def test_words_without_letters_take_no_time() -> None:
    codes, ends = spoken("one two", slips=0)
    aligner = aligner_for("one — 二 two")
    push_frames(aligner, codes)
    aligner.finish()
    assert aligner.spoken_until(round(ends[-1]) - FRAME_MS) == 8
    assert aligner.spoken_until(round(ends[-1])) == 11


@pytest.mark.parametrize("lazy", [False, True])
def test_spoken_until_is_exact_to_the_word(lazy: bool) -> None:
    """Asked in the middle of every word, as an interrupt does."""
    codes, ends = spoken(SOURCE)
    aligner: WordTiming = LazyWordAligner(aligner_for(SOURCE)) if lazy else aligner_for(SOURCE)
    if lazy:
        aligner.push_text(SOURCE, len(SOURCE))
    starts = [0, *(at + 1 for at, char in enumerate(SOURCE) if char == " ")]
    heard, middles = 0, [(begin + end) / 2 for begin, end in zip([0, *ends], ends, strict=False)]
    for start, middle in zip(starts, middles, strict=True):
        # Playback follows the generated audio by one frame or by half a second.
        for lag_frames in (1, 6):
            until = min(len(codes), round(middle / FRAME_MS) + lag_frames)
            push_frames(aligner, codes[heard:until])
            heard = max(heard, until)
            assert aligner.spoken_until(round(middle)) == start
    aligner.finish()
    assert aligner.spoken_until(10**6) == len(SOURCE)


def test_segments_are_aligned_separately() -> None:
    first, first_ends = spoken("seven stones.")
    second, second_ends = spoken("many people sing.")
    aligner = aligner_for("seven stones. many people sing.")
    words = push_frames(aligner, first)
    aligner.end_segment(13)
    words += push_frames(aligner, second)
    aligner.finish()
    words += aligner.take_words()
    begin = FRAME_MS * len(first)
    wanted = [*first_ends, *(begin + end for end in second_ends)]
    assert max(abs(word.end_ms - end) for word, end in zip(words, wanted, strict=True)) <= FRAME_MS


def test_features_are_two_bytes_per_frame() -> None:
    codes, _ = spoken("one")
    heard = acoustic_scorer().extract_features(no_sound(codes), codes)
    assert heard.nbytes == 2 * len(codes)
