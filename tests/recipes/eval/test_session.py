from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from eval.listener import Recognition
from eval.plan import Task
from eval.session import Speaker, SynthesizedUtterance, perform
from eval.takes import VOICE, TakeKey, TakeLog
from eval.texts import EvaluationText
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.virtual_time import run
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.interface import SamplingOptions

TASKS = [
    Task(EvaluationText("sentences", text, text), TakeKey(VOICE, "slt", text), candidates)
    for text, candidates in (("one.", ("one.", "two.")), ("two.", ("two.", "one.")), ("three.", ()))
]


class ConstantRecogniser:
    """RecogniserPool that hear the same of everything, and always choose the first candidate."""

    async def listen(self, pcm: np.ndarray, candidates: Sequence[str]) -> Recognition:
        return Recognition("one", 0 if candidates and len(pcm) == 24_000 else None)


async def make(task: Task) -> tuple[np.ndarray, bool]:
    return np.full(24_000 if task.said.spoken != "two." else 48_000, 0.1, np.float32), task.said.spoken != "three."


async def test_what_was_made_and_heard_is_written_down(tmp_path: Path) -> None:
    ledger = TakeLog(tmp_path / "takes")
    await perform("slt", TASKS, make, ConstantRecogniser(), ledger)
    assert [(take.seconds, take.ended, take.chosen, take.heard) for take in ledger] == [
        (1.0, True, True, "one"),
        (2.0, True, False, "one"),
        (1.0, False, None, "one"),
    ]


async def test_a_run_goes_on_where_another_was_stopped(tmp_path: Path) -> None:
    made = []

    async def make_two(task: Task) -> tuple[np.ndarray, bool]:
        made.append(task.said.spoken)
        if len(made) == 3:
            raise OSError("the power failed")
        return await make(task)

    ledger = TakeLog(tmp_path / "takes")
    await perform("slt", TASKS[:2], make_two, ConstantRecogniser(), ledger)
    with pytest.raises(ExceptionGroup):
        await perform("slt", TASKS, make_two, ConstantRecogniser(), ledger)
    again = TakeLog(tmp_path / "takes")
    assert len(again) == 2
    await perform("slt", TASKS, make_two, ConstantRecogniser(), again)
    assert made == ["one.", "two.", "three.", "three."]
    assert len(again) == 3


async def test_when_time_is_up_nothing_more_is_begun(tmp_path: Path) -> None:
    ledger = TakeLog(tmp_path / "takes")
    now_s = asyncio.get_running_loop().time()
    await perform("slt", TASKS, make, ConstantRecogniser(), ledger, until_s=now_s)
    assert len(ledger) == 0
    await perform("slt", TASKS, make, ConstantRecogniser(), ledger, until_s=now_s + 60)
    assert len(ledger) == 3


TEXT = "One two three four five six."


def spoken(words_per_s: float | None = None) -> SynthesizedUtterance:
    async def main() -> SynthesizedUtterance:
        voice = ToneSynthesizer()
        await voice.start()
        speaker = Speaker(voice, at_once=1)
        pace = {} if words_per_s is None else {"words_per_s": words_per_s}
        return await speaker.speak(voice.default_voice, TEXT, 3, SamplingOptions(), **pace)

    return run(main())


def test_the_whole_text_is_spoken_to_its_end() -> None:
    at_once = spoken()
    assert at_once.ended
    assert len(at_once.arrivals_s) * FRAME_SAMPLES == len(at_once.pcm) > 0


@pytest.mark.parametrize("words_per_s", [3.0, 12.0])
def test_text_comes_at_its_pace_and_says_the_same(words_per_s: float) -> None:
    paced = spoken(words_per_s)
    assert np.array_equal(paced.pcm, spoken().pcm)
    # Nothing of the last word can be there before it was written.
    assert paced.arrivals_s[-1] >= 5 / words_per_s
    assert paced.arrivals_s[0] < 5 / words_per_s
