"""Optional fast paths are used when they pass their self-test, and otherwise leave one log line."""

from __future__ import annotations

import pytest
import torch
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
    "error", [EngineError("no compiler"), OSError("no compiler"), torch.OutOfMemoryError("no compiler")]
)
@pytest.mark.parametrize("stage", ["build", "self-test"])
def test_expected_errors_disable_the_path(error: Exception, stage: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> bool:
        raise error

    build = fail if stage == "build" else lambda: 5
    assert accelerated("fast path", build, fail) is None
    assert [record.getMessage() for record in caplog.records] == ["fast path disabled: no compiler"]


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
