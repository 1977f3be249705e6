"""What a start says of itself: its step, and the time left by the last start's durations."""

from __future__ import annotations

from pathlib import Path

import pytest
from voxgate.pipeline.talker.start_progress import StartProgress, StartStep


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def run_start(progress: StartProgress, clock: ManualClock, *, factor: float = 1.0) -> list[str]:
    """Runs a start of three steps of 10, 20 and 4 s, the second one of another process.

    Returns what is said half way in each.
    """
    said = []

    def half(seconds: float) -> None:
        clock.now_s += seconds * factor / 2
        said.append(str(progress))
        clock.now_s += seconds * factor / 2

    progress.begin("importing")
    half(10)
    loading_s = clock.now_s
    with progress.following(lambda: [StartStep("loading", loading_s)]):
        half(20)
    progress.enter("measuring")
    half(4)
    progress.finish()
    return said


def test_nothing_is_said_before_a_start() -> None:
    assert str(StartProgress()) == ""


def test_first_start_names_its_steps(tmp_path: Path, clock: ManualClock) -> None:
    said = run_start(StartProgress(tmp_path / "cache" / "start.json", clock), clock)
    assert said == ["importing", "loading", "measuring"]


def test_next_start_says_how_long_it_still_takes(tmp_path: Path, clock: ManualClock) -> None:
    history = tmp_path / "cache" / "start.json"
    run_start(StartProgress(history, clock), clock)
    again = run_start(StartProgress(history, clock), clock)
    assert again == ["importing, about 29 s left", "loading, about 14 s left", "measuring, about 2 s left"]


def test_step_that_takes_longer_than_before_leaves_the_later_ones(tmp_path: Path, clock: ManualClock) -> None:
    history = tmp_path / "start.json"
    run_start(StartProgress(history, clock), clock)
    slow = run_start(StartProgress(history, clock), clock, factor=4)
    assert slow == ["importing, about 24 s left", "loading, about 4 s left", "measuring, about 1 s left"]


def test_unknown_step_has_no_estimate(tmp_path: Path, clock: ManualClock) -> None:
    history = tmp_path / "start.json"
    run_start(StartProgress(history, clock), clock)
    progress = StartProgress(history, clock)
    progress.begin("downloading")
    assert str(progress) == "downloading"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"importing": "long"}', '{"importing": null}', "3"])
def test_unusable_history_gives_no_estimate(tmp_path: Path, clock: ManualClock, content: str) -> None:
    history = tmp_path / "start.json"
    history.write_text(content)
    progress = StartProgress(history, clock)
    progress.begin("importing")
    assert str(progress) == "importing"


def test_history_that_cannot_be_written_does_not_matter(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").touch()
    run_start(StartProgress(tmp_path / "file" / "start.json", clock), clock)


def test_memory_that_each_step_took_is_logged(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    progress = StartProgress(clock=clock)
    steps = (
        StartStep("loading the model", 101, 20_000_000_000, 0),
        StartStep("loading the codec", 102, 15_500_000_000, 4_400_000_000),
        StartStep("warming up", 103, 15_250_000_000, 4_600_000_000),
    )
    progress.begin("importing")
    with caplog.at_level("INFO"), progress.following(lambda: steps):
        pass
    with caplog.at_level("INFO"):
        progress.finish()
    assert caplog.messages[-1].endswith(": loading the model 4.50 (4.40), loading the codec 0.25 (0.20)")
