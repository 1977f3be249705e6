"""Synthesised speech: positions of sentences, phones and words, and chunks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from train import kit
from train.speech import synthesis as speech
from train.speech.flite import PHONES, RATE_HZ, VOICES, Flite, FlitePhone, FliteReading, FliteWord
from train.store import read_chunk

VOICE = Path(__file__).parents[3] / "recipes" / "voice"
TEXT = ["hello there.", "it's a small step, isn't it?", "mary's dog can't run. no."]


@pytest.fixture(scope="module")
def flite() -> Flite:
    try:
        return Flite("slt")
    except OSError as error:
        pytest.skip(f"flite's libraries are not here: {error}")


def reading(lead_s: float = 0.3, tail_s: float = 0.3) -> FliteReading:
    """Two words of a constant tone each, 0.2 s and 0.4 s, with 0.1 s between them."""
    ends = np.cumsum([lead_s, 0.2, 0.1, 0.4, tail_s])
    samples = np.concatenate(
        [
            np.full(round(length * RATE_HZ), value)
            for length, value in zip(np.diff(ends, prepend=0), [0, 1000, 0, 2000, 0], strict=True)
        ]
    )
    phones = [FlitePhone(name, float(end)) for name, end in zip(("pau", "s", "pau", "iy", "pau"), ends, strict=True)]
    spoken = [FliteWord("s", float(ends[0]), float(ends[1])), FliteWord("e", float(ends[2]), float(ends[3]))]
    return FliteReading(samples.astype(np.int16), phones, spoken)


@pytest.mark.parametrize("lead_s", [0.3, speech.LEADING_SILENCE_S, 0.05])
@pytest.mark.parametrize("tail_s", [0.3, 0.02])
def test_silence_around_sentence_is_short_and_constant(lead_s: float, tail_s: float) -> None:
    one = speech.sentence(reading(lead_s, tail_s))
    loud = np.flatnonzero(one.samples)
    assert len(one.samples) == one.frames * speech.FRAME_SAMPLES
    assert abs(loud[0] / RATE_HZ - speech.LEADING_SILENCE_S) < 1e-3
    assert 0.08 <= (len(one.samples) - 1 - loud[-1]) / RATE_HZ <= 0.161
    assert one.words_ms == [round(1000 * speech.LEADING_SILENCE_S) + after_ms for after_ms in (0, 300)]


@pytest.mark.parametrize(("quiet_s", "lead_s"), [(0.01, 0.09), (0.06, 0.05), (0.3, 0.02)])
def test_quiet_beginning_is_moved_earlier(quiet_s: float, lead_s: float) -> None:
    """The sentence becomes audible in time, as far as its recording allows."""
    ends = np.cumsum([0.3, 0.4, 0.4, 0.3])
    phones = [FlitePhone(name, float(end)) for name, end in zip(("pau", "hh", "iy", "pau"), ends, strict=True)]
    samples = np.zeros(round(ends[-1] * RATE_HZ), np.int16)
    samples[round(0.3 * RATE_HZ) : round(1.1 * RATE_HZ)] = 1000
    samples[round(0.3 * RATE_HZ) : round((0.3 + quiet_s) * RATE_HZ)] = 20
    one = speech.sentence(FliteReading(samples, phones, [FliteWord("he", 0.3, 1.1)]))
    assert abs(np.flatnonzero(one.samples)[0] / RATE_HZ - lead_s) < 1e-3
    assert one.words_ms == [round(1000 * lead_s)]


def test_phones_are_at_their_sounds() -> None:
    one = speech.sentence(reading(), gain=0.5)
    phones = one.phones.reshape(-1)
    levels = one.samples.reshape(len(phones), -1).mean(1)
    for name, level in (("s", 500), ("iy", 1000), ("pau", 0)):
        of_phone = levels[phones == PHONES.index(name)]
        assert len(of_phone)
        assert abs(np.median(of_phone) - level) < 1


def test_passes_rotate_voices() -> None:
    plan = speech.chunks(1900, VOICES, passes=3)
    readers = {}
    for chunk in plan:
        readers.setdefault(chunk.first, []).append(chunk.voice)
    assert sorted(readers) == list(range(0, 1900, 200))
    assert all(sorted(voices) == sorted(VOICES) for voices in readers.values())
    assert len({chunk.name for chunk in plan}) == len(plan)
    shares = [sum(chunk.voice == voice for chunk in plan[:10]) for voice in VOICES]
    assert max(shares) - min(shares) <= 1


class SelectiveFlite:
    """Refuses one line and skips a word of another; reads all other lines alike."""

    def read(self, text: str) -> FliteReading:
        if text == "refused.":
            raise ValueError(text)
        return reading()


def test_chunk_leaves_out_unreadable_lines(tmp_path: Path) -> None:
    lines = ["two words.", "refused.", "three words here.", "again two."]
    speech.write(speech.ChunkPlan(7, "rms", 0), lines, SelectiveFlite(), tmp_path)
    chunk = read_chunk(tmp_path / "rms_00007.json")
    assert (chunk.voice, chunk.lines) == ("rms", [0, 3])
    one = speech.sentence(reading(), speech.GAINS["rms"])
    assert np.array_equal(chunk.audio, np.concatenate([one.samples] * 2))
    assert np.array_equal(chunk.phones, np.concatenate([one.phones] * 2))
    assert not list(tmp_path.glob("*.tmp"))


def test_flite_returns_words_as_written(flite: Flite) -> None:
    for line in TEXT:
        read = flite.read(line)
        assert [word.text for word in read.words] == [word.strip(",.?!") for word in line.split()]
        starts = [word.start_s for word in read.words]
        assert starts == sorted(starts)
        assert all(word.start_s < word.end_s for word in read.words)
        assert read.words[-1].end_s <= read.phones[-1].end_s <= len(read.samples) / RATE_HZ + 0.01
        assert {phone.name for phone in read.phones} <= set(PHONES)


def test_flite_refuses_text_without_words(flite: Flite) -> None:
    with pytest.raises(ValueError, match="no word"):
        flite.read("...")


@pytest.mark.usefixtures("flite")
def test_existing_chunks_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text/train.txt").write_text("".join(f"source\t{line}\n" for line in TEXT))
    command = [sys.executable, "-m", "train.speech.synthesis", str(tmp_path), "--processes", "2"]
    environment = {**os.environ, "PYTHONPATH": str(VOICE)}
    subprocess.run(command, env=environment, check=True, timeout=60)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "speech").iterdir()}
    assert sorted(path.name for path in made if path.suffix == ".json") == [
        "awb_00002.json",
        "rms_00001.json",
        "slt_00000.json",
    ]
    assert read_chunk(tmp_path / "speech/slt_00000.json").lines == [0, 1, 2]

    missing = tmp_path / "speech/rms_00001.json"
    missing.unlink()
    subprocess.run(command, env=environment, check=True, timeout=60)
    kept = {path: when for path, when in made.items() if not path.name.startswith("rms")}
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert missing.exists()


def test_kit_unpacks_to_packed_files(tmp_path: Path) -> None:
    work, packed, there = tmp_path / "work", tmp_path / "kit", tmp_path / "there"
    (work / "text").mkdir(parents=True)
    (tmp_path / "installed").mkdir()
    (work / "flite").symlink_to(tmp_path / "installed")
    for name in ("train.txt", "held_out.txt", "tokenizer.json"):
        (work / "text" / name).write_text(f"what {name} says\n")
    (work / "flite/libflite.so.1").write_bytes(b"library")
    assert kit.pack(work, packed) > 0
    assert (packed / "train/speech/synthesis.py").exists()
    kit.unpack(packed, there)
    shutil.rmtree(tmp_path / "installed")
    assert (there / "flite/libflite.so.1").read_bytes() == b"library"
    for path in (work / "text").iterdir():
        assert (there / "text" / path.name).read_bytes() == path.read_bytes()
