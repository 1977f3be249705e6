"""Pauses, rates and volumes between the frames of the talker."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.pipeline.interface import NATURAL, Prosody
from voxgate.pipeline.prosody.shaper import CHUNK_SAMPLES, AudioRun, SpeechShaper
from voxgate.pipeline.text.markup.writer import Pause, ProsodyChange


class Bench:
    """A shaper, and the speech that it has reported."""

    def __init__(self, prosody: Prosody = NATURAL) -> None:
        self.fed: list[int] = []
        self.shaper = SpeechShaper(prosody, lambda pcm, frame: self.fed.extend(range(frame, frame + frames(pcm))))

    def runs(self) -> list[AudioRun]:
        runs = list(iter(self.shaper.take, None))
        assert all(len(run.pcm) > 0 for run in runs)
        return runs


def frames(pcm: Pcm) -> int:
    return len(pcm) // FRAME_SAMPLES


def speech(count: int) -> Pcm:
    """Frames of a tone whose period divides a frame."""
    return (0.3 * np.sin(2 * np.pi * np.arange(count * FRAME_SAMPLES) / 160)).astype(np.float32)


def samples(runs: list[AudioRun]) -> int:
    return sum(len(run.pcm) for run in runs)


def test_pause_is_due_behind_its_frame_exact_to_the_sample() -> None:
    b = Bench()
    b.shaper.place([Pause(333, 5)], 2)
    b.shaper.push(speech(1), 1)
    assert [run.frames for run in b.runs()] == [1]
    assert b.shaper.has_marks
    b.shaper.push(speech(3), 4)
    runs = b.runs()
    assert [run.frames for run in runs] == [1, 0, 0, 0, 2]
    assert [run.first_frame for run in runs] == [1, 2, 2, 2, 2]
    assert samples(runs[1:-1]) == 333 * 24
    assert max(len(run.pcm) for run in runs[1:-1]) <= CHUNK_SAMPLES
    assert not b.shaper.has_marks
    assert b.fed == [0, 1, 2, 3]


def test_all_pauses_are_due_at_the_end() -> None:
    b = Bench()
    b.shaper.place([Pause(100, 5), Pause(200, 5)], 9)
    assert not b.runs()
    b.shaper.finish()
    assert samples(b.runs()) == 300 * 24


def test_frames_that_were_cut_off_count_for_marks() -> None:
    b = Bench()
    b.shaper.place([Pause(100, 0)], 2)
    b.shaper.push(speech(0), 1)
    assert not b.runs()
    b.shaper.push(speech(1), 3)
    assert [run.frames for run in b.runs()] == [0, 1]


def test_own_prosody_leaves_speech_as_it_is() -> None:
    b, pcm = Bench(), speech(3)
    b.shaper.push(pcm, 3)
    (run,) = b.runs()
    assert run.pcm is pcm


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.25, 2.0])
def test_stretched_speech_has_its_length_and_counts_all_frames(rate: float) -> None:
    b = Bench(Prosody(rate))
    runs = []
    for end in range(1, 11):
        b.shaper.push(speech(1), end)
        runs += b.runs()
    b.shaper.finish()
    runs += b.runs()
    assert samples(runs) == round(10 * FRAME_SAMPLES / rate)
    assert sum(run.frames for run in runs) == 10
    assert [run.first_frame for run in runs] == list(np.cumsum([0] + [run.frames for run in runs[:-1]]))


def test_rate_changes_behind_its_frame_exact_to_the_sample() -> None:
    b = Bench()
    b.shaper.place([ProsodyChange(Prosody(0.5), 3)], 2)
    b.shaper.place([ProsodyChange(Prosody(1), 6)], 4)
    b.shaper.push(speech(6), 6)
    b.shaper.finish()
    pcm = np.concatenate([run.pcm for run in b.runs()])
    two = 2 * FRAME_SAMPLES
    assert len(pcm) == 4 * two
    assert np.array_equal(pcm[:two], speech(2))
    assert np.array_equal(pcm[-two:], speech(6)[-two:])
    assert np.abs(np.diff(pcm)).max() < 1.2 * np.abs(np.diff(speech(6))).max(), "no step where the rate changes"
    assert b.shaper.timeline.speech_samples(2 * two) == two + FRAME_SAMPLES


def test_pause_within_stretched_speech_is_exact() -> None:
    b = Bench(Prosody(0.8))
    b.shaper.place([Pause(500, 3)], 3)
    b.shaper.push(speech(6), 6)
    b.shaper.finish()
    runs = b.runs()
    before = round(3 * FRAME_SAMPLES / 0.8)
    pcm = np.concatenate([run.pcm for run in runs])
    assert len(pcm) == 2 * before + 500 * 24
    assert not pcm[before : before + 500 * 24].any()
    assert pcm[before - 20 : before].any()
    assert pcm[before + 500 * 24 :][:20].any()


def test_volume_changes_without_a_step() -> None:
    b = Bench(Prosody(volume=0.5))
    b.shaper.place([ProsodyChange(Prosody(volume=1.0), 3)], 2)
    b.shaper.push(speech(4), 4)
    pcm = np.concatenate([run.pcm for run in b.runs()])
    assert np.allclose(pcm[: 2 * FRAME_SAMPLES], speech(4)[: 2 * FRAME_SAMPLES] / 2)
    assert np.array_equal(pcm[3 * FRAME_SAMPLES :], speech(4)[3 * FRAME_SAMPLES :])
    assert np.abs(np.diff(pcm)).max() < 1.2 * np.abs(np.diff(speech(4))).max()


def test_clearing_drops_everything() -> None:
    b = Bench(Prosody(0.8))
    b.shaper.push(speech(3), 3)
    b.shaper.take()
    b.shaper.place([Pause(9000, 3)], 3)
    b.shaper.clear()
    b.shaper.finish()
    assert not b.runs()
