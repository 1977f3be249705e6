from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from voxgate.benchmarks.gpu.soak import LAUNCHES_IN_FLIGHT, FrameCredit, SoakFigures, soak


def launches(*, wrong_at: int = -1, fails_at: int = -1) -> list[Callable[[], Tensor]]:
    """Two launches, of three and two rows; of all calls, one gives a wrong code and one fails."""
    calls = 0

    def launch(rows: int) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise RuntimeError("CUDA error: unspecified launch failure\nCompile with TORCH_USE_CUDA_DSA")
        codes = torch.arange(rows * 15).view(rows, 15)
        if calls == wrong_at:
            codes[1, 7] += 1
        return codes

    return [lambda: launch(3), lambda: launch(2)]


def run(calls: list[Callable[[], Tensor]], frames: int) -> tuple[SoakFigures, list[int]]:
    made: list[int] = []
    return soak(calls, lambda: None, made.append, lambda _: None, frames=frames, seconds=60.0), made


def test_soak_counts_its_frames_and_lets_the_codec_follow() -> None:
    figures, made = run(launches(), 300)
    each = LAUNCHES_IN_FLIGHT // 2 * 5
    assert (figures.frames, figures.launches, figures.differing) == (2 * each, 2 * LAUNCHES_IN_FLIGHT, 0)
    assert made == [each, each]
    assert figures.error is None


def test_one_wrong_code_is_one_differing_row() -> None:
    figures, _ = run(launches(wrong_at=77), 300)
    assert figures.differing == 1


def test_kernel_that_traps_ends_the_soak_with_its_error() -> None:
    figures, made = run(launches(fails_at=100), 10_000)
    assert figures.error == "CUDA error: unspecified launch failure"
    assert figures.launches == LAUNCHES_IN_FLIGHT
    assert len(made) == 1


def test_soak_ends_after_its_time() -> None:
    reported: list[SoakFigures] = []
    figures = soak(launches(), lambda: None, lambda _: None, lambda each: reported.append(replace(each)), seconds=0.0)
    assert figures.launches == 0


def test_codec_waits_for_frames_and_ends_with_the_soak() -> None:
    credit, taken = FrameCredit(), threading.Event()
    results: list[bool] = []

    def decode() -> None:
        results.append(credit.take(16))
        taken.set()
        results.append(credit.take(16))

    worker = threading.Thread(target=decode)
    worker.start()
    credit.add(10)
    assert not taken.is_set()
    credit.add(10)
    assert taken.wait(10.0)
    credit.end()
    worker.join(10.0)
    assert results == [True, False]
