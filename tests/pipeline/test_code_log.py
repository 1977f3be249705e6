from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.code_log import CodeLog, check_runs
from voxgate.pipeline.errors import CheckpointRefused
from voxgate.pipeline.interface import CodeRun, FinishReason

GROUPS, CODEBOOK = 2, 8
FLOOR = 10


def codes(*firsts: int) -> np.ndarray:
    return np.array([[first, 0] for first in firsts], np.int16)


def plain(runs: list[CodeRun]) -> list[tuple[int, int, list[int], FinishReason | None]]:
    return [(run.generation, run.first, [int(frame[0]) for frame in run.codes], run.end) for run in runs]


def check(*runs: CodeRun) -> None:
    check_runs(runs, groups=GROUPS, codebook=CODEBOOK, max_frames=4)


def test_runs_are_taken_once_and_end_with_their_generation() -> None:
    log = CodeLog(keep=True)
    assert log.begin(FLOOR) is None
    for frame in codes(1, 2):
        log.add(frame)
    assert plain(log.take()) == [(0, 0, [1, 2], None)]
    assert log.take() == []
    log.add(codes(3)[0])
    log.end(FinishReason.END)
    log.begin(FLOOR)
    log.add(codes(4)[0])
    log.end(None)
    assert plain(log.take()) == [(0, 2, [3], FinishReason.END), (1, 0, [4], None)]


def test_the_end_behind_frames_that_were_taken_is_a_run_of_its_own() -> None:
    log = CodeLog(keep=True)
    log.begin(FLOOR)
    log.add(codes(1)[0])
    log.take()
    log.end(FinishReason.LENGTH)
    assert plain(log.take()) == [(0, 1, [], FinishReason.LENGTH)]


def test_known_frames_are_given_to_their_generation_and_not_kept_again() -> None:
    first = CodeRun(0, 0, codes(1, 2), FinishReason.END)
    second = CodeRun(1, 0, codes(3))
    log = CodeLog([first, second], keep=True)
    known = log.begin(FLOOR)
    assert known is not None
    assert (len(known.frames), known.finish_reason, known.iterated) == (2, FinishReason.END, 0)
    for frame in known.frames:
        log.add(frame)
    log.end(FinishReason.END)
    known = log.begin(FLOOR)
    assert known is not None
    assert (len(known.frames), known.finish_reason) == (1, None)
    log.add(codes(3)[0])
    log.add(codes(5)[0])
    log.end(FinishReason.END)
    assert log.begin(FLOOR) is None
    assert plain(log.take()) == [(1, 1, [5], FinishReason.END)]


def test_nothing_is_kept_unless_asked_for() -> None:
    log = CodeLog()
    log.begin(FLOOR)
    log.add(codes(1)[0])
    log.end(FinishReason.END)
    assert log.take() == []


def test_consecutive_runs_are_accepted() -> None:
    empty_end = CodeRun(1, 2, np.zeros((0, 0), np.int16), FinishReason.END)
    check(CodeRun(0, 0, codes(1, 2)), CodeRun(0, 2, codes(3), FinishReason.END), CodeRun(1, 0, codes(1, 2)), empty_end)


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([CodeRun(1, 0, codes(1))], "must continue frame 0 of generation 0, got frame 0 of generation 1"),
        ([CodeRun(0, 1, codes(1))], "must continue frame 0 of generation 0, got frame 1"),
        ([CodeRun(0, 0, codes(1)), CodeRun(1, 0, codes(1))], "must continue frame 1 of generation 0"),
        ([CodeRun(0, 0, codes(1), FinishReason.END), CodeRun(0, 1, codes(1))], "must continue"),
        ([CodeRun(0, 0, codes(1, 1, 1, 1, 1))], "at most 4 frames, got 5"),
        ([CodeRun(0, 0, np.zeros((1, 3), np.int16))], "must have 2 codes, got 3"),
        ([CodeRun(0, 0, codes(8))], "from 0 to 7, got 8"),
        ([CodeRun(0, 0, codes(-1))], "from 0 to 7, got -1"),
    ],
)
def test_what_the_model_cannot_have_made_is_refused(runs: list[CodeRun], reason: str) -> None:
    with pytest.raises(CheckpointRefused, match=reason):
        check(*runs)
