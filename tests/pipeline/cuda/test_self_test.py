"""Optional fast paths are used when they pass their self-test, and otherwise leave one log line."""

from __future__ import annotations

import logging

import pytest
import torch
from voxgate.pipeline.cuda.fast_paths import outcomes
from voxgate.pipeline.cuda.self_test import RandomInputs, accelerated
from voxgate.pipeline.errors import EngineError


def test_path_that_passes_its_self_test_is_used(caplog: pytest.LogCaptureFixture) -> None:
    assert accelerated("fast path", lambda: 5, lambda value: value == 5) == 5
    assert not caplog.records


def test_path_that_fails_its_self_test_is_disabled(caplog: pytest.LogCaptureFixture) -> None:
    assert accelerated("fast path", lambda: 5, lambda value: value == 6) is None
    assert [record.getMessage() for record in caplog.records] == [
        "fast path disabled: self-test differs from the reference"
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineError("no compiler"), "no compiler"),
        (OSError("no compiler"), "no compiler"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 25 lines"), "out of GPU memory"),
    ],
)
@pytest.mark.parametrize("stage", ["build", "self-test"])
def test_expected_errors_disable_the_path(
    error: Exception, reason: str, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bool:
        raise error

    build = fail if stage == "build" else lambda: 5
    assert accelerated("fast path", build, fail) is None
    assert [record.getMessage() for record in caplog.records] == [f"fast path disabled: {reason}"]
    assert outcomes()["fast path"] == reason


def test_path_that_the_gpu_lacks_is_not_built(caplog: pytest.LogCaptureFixture) -> None:
    def build() -> int:
        raise AssertionError

    with caplog.at_level(logging.INFO):
        assert accelerated("fast path", build, unavailable="needs Hopper") is None
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "fast path disabled: needs Hopper")
    ]


def test_unexpected_errors_propagate() -> None:
    def fail() -> int:
        raise KeyError("fault")

    with pytest.raises(KeyError):
        accelerated("fast path", fail)


def test_random_inputs_ignore_torch_defaults() -> None:
    expected = RandomInputs(1).normal(3)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(RandomInputs(1).normal(3), expected)
    finally:
        torch.set_default_dtype(default)
