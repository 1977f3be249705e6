from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from eval.listener import Heard
from eval.plan import Task
from eval.session import perform
from eval.takes import VOICE, Ledger, Said
from eval.texts import Line

TASKS = [
    Task(Line("sentences", text, text), Said(VOICE, "slt", text), candidates)
    for text, candidates in (("one.", ("one.", "two.")), ("two.", ("two.", "one.")), ("three.", ()))
]


class KnowAll:
    """Ears that hear the same of everything, and always choose the first candidate."""

    async def listen(self, pcm: np.ndarray, candidates: Sequence[str]) -> Heard:
        return Heard("one", 0 if candidates and len(pcm) == 24_000 else None)


async def make(task: Task) -> tuple[np.ndarray, bool]:
    return np.full(24_000 if task.said.spoken != "two." else 48_000, 0.1, np.float32), task.said.spoken != "three."


async def test_what_was_made_and_heard_is_written_down(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "takes")
    await perform("slt", TASKS, make, KnowAll(), ledger)
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

    ledger = Ledger(tmp_path / "takes")
    await perform("slt", TASKS[:2], make_two, KnowAll(), ledger)
    with pytest.raises(ExceptionGroup):
        await perform("slt", TASKS, make_two, KnowAll(), ledger)
    again = Ledger(tmp_path / "takes")
    assert len(again) == 2
    await perform("slt", TASKS, make_two, KnowAll(), again)
    assert made == ["one.", "two.", "three.", "three."]
    assert len(again) == 3


async def test_when_time_is_up_nothing_more_is_begun(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "takes")
    now_s = asyncio.get_running_loop().time()
    await perform("slt", TASKS, make, KnowAll(), ledger, until_s=now_s)
    assert len(ledger) == 0
    await perform("slt", TASKS, make, KnowAll(), ledger, until_s=now_s + 60)
    assert len(ledger) == 3
