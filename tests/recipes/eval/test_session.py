"""Speaking and measuring tasks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from eval.judging.judge import Judgement
from eval.measurements import VOICE, MeasurementLog, UtteranceKey
from eval.plan import EvaluationText, Task
from eval.run import require_measured
from eval.session import Speaker, SynthesizedUtterance, perform
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.virtual_time import run
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.interface import SamplingOptions

TASKS = [
    Task(EvaluationText("sentences", text, text), UtteranceKey(VOICE, "heart", text))
    for text in ("one.", "two.", "three.")
]


class ConstantJudge:
    """A `JudgePool` that always returns the same transcript, and scores audio by its seconds."""

    async def judge(self, pcm: np.ndarray, scored: bool) -> Judgement:
        return Judgement("one", len(pcm) / 24_000 if scored else None)


async def make(task: Task) -> tuple[np.ndarray, bool]:
    return np.full(24_000 if task.key.spoken != "two." else 48_000, 0.1, np.float32), task.key.spoken != "three."


async def test_measurements_are_logged(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path / "measurements")
    await perform("heart", TASKS, make, ConstantJudge(), log)
    assert [
        (measurement.seconds, measurement.ended, measurement.mos, measurement.transcript) for measurement in log
    ] == [
        (1.0, True, 1.0, "one"),
        (2.0, True, 2.0, "one"),
        (1.0, False, 1.0, "one"),
    ]


async def test_run_continues_a_stopped_one(tmp_path: Path) -> None:
    made = []

    async def make_two(task: Task) -> tuple[np.ndarray, bool]:
        made.append(task.key.spoken)
        if len(made) == 3:
            raise OSError("the device failed")
        return await make(task)

    log = MeasurementLog(tmp_path / "measurements")
    await perform("heart", TASKS[:2], make_two, ConstantJudge(), log)
    with pytest.raises(ExceptionGroup):
        await perform("heart", TASKS, make_two, ConstantJudge(), log)
    again = MeasurementLog(tmp_path / "measurements")
    assert len(again) == 2
    await perform("heart", TASKS, make_two, ConstantJudge(), again)
    assert made == ["one.", "two.", "three.", "three."]
    assert len(again) == 3


async def test_missing_score_is_added(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path / "measurements")
    await perform("heart", [replace(task, scored=False) for task in TASKS], make, ConstantJudge(), log)
    assert [measurement.mos for measurement in log] == [None] * 3
    await perform("heart", TASKS[:1], make, ConstantJudge(), log)
    again = MeasurementLog(tmp_path / "measurements")
    assert [measurement.mos for measurement in again] == [1.0, None, None]


async def test_no_task_starts_after_deadline(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path / "measurements")
    now_s = asyncio.get_running_loop().time()
    await perform("heart", TASKS, make, ConstantJudge(), log, until_s=now_s)
    assert len(log) == 0
    await perform("heart", TASKS, make, ConstantJudge(), log, until_s=now_s + 60)
    assert len(log) == 3


def test_voice_without_measurements_ends_evaluation() -> None:
    with pytest.raises(ValueError, match=r"no utterance of slt began within 0\.5 minutes"):
        require_measured({"slt": []}, 0.5)
    require_measured({}, 0.5)


TEXT = "One two three four five six."


def spoken(words_per_s: float | None = None) -> SynthesizedUtterance:
    async def main() -> SynthesizedUtterance:
        voice = ToneSynthesizer()
        await voice.start()
        speaker = Speaker(voice, concurrent=1)
        pace = {} if words_per_s is None else {"words_per_s": words_per_s}
        return await speaker.speak(voice.default_voice, TEXT, 3, SamplingOptions(), **pace)

    return run(main())


def test_whole_text_is_spoken() -> None:
    unpaced = spoken()
    assert unpaced.ended
    assert len(unpaced.arrivals_s) * FRAME_SAMPLES == len(unpaced.pcm) > 0


@pytest.mark.parametrize("words_per_s", [3.0, 12.0])
def test_pace_of_text_does_not_change_audio(words_per_s: float) -> None:
    paced = spoken(words_per_s)
    assert np.array_equal(paced.pcm, spoken().pcm)
    # The last word cannot be spoken before its text arrived.
    assert paced.arrivals_s[-1] >= 5 / words_per_s
    assert paced.arrivals_s[0] < 5 / words_per_s


def test_utterance_that_does_not_end_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.session._DEADLINE_S", 0.0)
    with pytest.raises(TimeoutError, match="an utterance must end within 0 s: '"):
        spoken(1.0)
